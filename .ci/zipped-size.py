"""Prints the size in bytes of a ZIP archive of the file, as it is uploaded to Lambda."""

import io
import sys
import zipfile

package = io.BytesIO()
with zipfile.ZipFile(package, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
    archive.write(sys.argv[1], "bootstrap")
print(package.tell())
