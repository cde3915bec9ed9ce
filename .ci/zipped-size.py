"""Prints how many bytes a file takes in a ZIP, as it is uploaded."""

import io
import sys
import zipfile

package = io.BytesIO()
with zipfile.ZipFile(package, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
    archive.write(sys.argv[1], "bootstrap")
print(package.tell())
