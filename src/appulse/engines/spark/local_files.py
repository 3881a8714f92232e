"""Local files without a process for each: where Hadoop makes a file or a folder it runs `chmod`.

A micro-batch writes some ten files for each partition of a state, and those of its log and its sinks.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

import pyspark
from py4j.protocol import Py4JError

from appulse.engines.spark.gateway import kept_folder

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["use_local_files"]

_SOURCE = Path(__file__).with_name("LocalFiles.java")
_CLASS, _EXTENDED = "appulse.LocalFiles", "org.apache.hadoop.hive.ql.io.ProxyLocalFileSystem"


def use_local_files(context: SparkContext) -> None:
    """Have a session on this machine write local files by the class of `LocalFiles.java`.

    Hadoop keeps one object for all local files, so what is put there is used from then on. Where that cannot be, in an
    environment that is read-only or with another Hadoop, files are written as before.
    """
    jvm: Any = context._jvm  # noqa: SLF001 - there is no public way to Hadoop
    gateway: Any = context._gateway  # noqa: SLF001
    files = jvm.org.apache.hadoop.fs.FileSystem
    configuration = jvm.org.apache.hadoop.conf.Configuration(context._jsc.hadoopConfiguration())  # noqa: SLF001
    present = files.getLocal(configuration)
    if os.name != "posix" or present.getClass().getName() != _EXTENDED:
        return
    with suppress(OSError, Py4JError):
        place = gateway.new_array(jvm.java.net.URL, 1)
        place[0] = jvm.java.net.URL(_compiled(jvm).as_uri())
        loader = jvm.java.net.URLClassLoader(place, _class_loader(jvm))
        loader.loadClass(_CLASS)
        configuration.setClassLoader(loader)
        configuration.set("fs.file.impl", _CLASS)
        present.close()
        files.getLocal(configuration)


def _compiled(jvm: Any) -> Path:
    """An archive of the class, which the first session makes with the compiler that Spark brings."""
    source = _SOURCE.read_text("utf-8")
    archive = kept_folder("files", source, pyspark.__version__) / "files.jar"
    if not archive.exists():
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(_class_loader(jvm))
        compiler.cook(source)
        archive.parent.mkdir(parents=True, exist_ok=True)
        part = archive.with_name(f"{os.getpid()}.part")
        with ZipFile(part, "w") as opened:
            for name, code in compiler.getBytecodes().items():
                opened.writestr(f"{name.replace('.', '/')}.class", bytes(code))
        part.replace(archive)
    return archive


def _class_loader(jvm: Any) -> Any:
    return jvm.java.lang.Thread.currentThread().getContextClassLoader()
