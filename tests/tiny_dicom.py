"""DICOM files of a few pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest


def write_dicom(file: Path, values: np.ndarray, kind: str = "MONOCHROME2", bits: int = 12, **elements: object) -> None:  # type: ignore[type-arg]
    pydicom = pytest.importorskip("pydicom")
    header = pydicom.dataset.Dataset()
    header.file_meta = pydicom.dataset.FileMetaDataset()
    header.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    header.SOPClassUID = header.file_meta.MediaStorageSOPClassUID = pydicom.uid.SecondaryCaptureImageStorage
    header.SOPInstanceUID = header.file_meta.MediaStorageSOPInstanceUID = pydicom.uid.generate_uid()
    header.Rows, header.Columns = values.shape[:2]
    header.PhotometricInterpretation, header.SamplesPerPixel = kind, 1
    header.BitsAllocated, header.BitsStored, header.HighBit, header.PixelRepresentation = 16, bits, bits - 1, 0
    header.PixelData = values.astype(np.uint16).tobytes()
    for name, value in elements.items():
        setattr(header, name, value)
    file.parent.mkdir(parents=True, exist_ok=True)
    header.save_as(file, enforce_file_format=True)
