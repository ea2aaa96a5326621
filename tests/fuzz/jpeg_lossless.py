"""JPEG Lossless for tests: only GDCM compresses to it, and from file to file alone."""

import tempfile

import gdcm
from pydicom import Dataset, dcmread
from pydicom.dataset import FileDataset
from pydicom.uid import JPEGLosslessSV1


def jpeg_lossless(data: Dataset) -> FileDataset:
    """The same slice, compressed."""
    with tempfile.TemporaryDirectory() as name:
        plain, packed = f"{name}/plain.dcm", f"{name}/packed.dcm"
        data.save_as(plain, enforce_file_format=True)
        reader, writer = gdcm.ImageReader(), gdcm.ImageWriter()
        reader.SetFileName(plain)
        assert reader.Read()
        change = gdcm.ImageChangeTransferSyntax()
        change.SetTransferSyntax(gdcm.TransferSyntax(gdcm.TransferSyntax.JPEGLosslessProcess14_1))
        change.SetInput(reader.GetImage())
        assert change.Change()
        writer.SetFileName(packed)
        writer.SetFile(reader.GetFile())
        writer.SetImage(change.GetOutput())
        assert writer.Write()
        found = dcmread(packed)
        assert found.file_meta.TransferSyntaxUID == JPEGLosslessSV1
        return found
