package appulse;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hive.ql.io.ProxyLocalFileSystem;

/** The local files of Spark, with permissions set by a system call and not by a process that runs chmod. */
public class LocalFiles extends ProxyLocalFileSystem {
  public LocalFiles() {
    fs = new Raw();
  }

  public static class Raw extends RawLocalFileSystem {
    public void setPermission(Path path, FsPermission permission) throws IOException {
      if (permission.getStickyBit()) { // which Java has no name for
        super.setPermission(path, permission);
        return;
      }
      java.nio.file.Path file = pathToFile(path).toPath();
      Files.setPosixFilePermissions(file, PosixFilePermissions.fromString(permission.toString()));
    }
  }
}
