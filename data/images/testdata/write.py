"""Writes pictures into a folder, and beside each what Pillow reads: python write.py FOLDER [NAME...]. With 13.0.0, the files of this folder.

A file without a PNG beside it is one that data/images refuses.
"""

import io
import random
import struct
import sys
import zlib

from PIL import Image, ImageOps

folder, names = sys.argv[1], sys.argv[2:]
noise = random.Random(1)


def picture(w, h):
    """Smooth colors, an edge, and noise."""
    im = Image.new("RGB", (w, h))
    for y in range(h):
        for x in range(w):
            edge = 120 if (x // 7 + y // 5) % 2 else 0
            im.putpixel((x, y), (x * 200 // w + noise.randrange(20), (edge + y * 130 // h) % 256, (x * y + edge) % 230 + noise.randrange(20)))
    return im


def clear(im):
    """The same with transparent pixels, whose colors stay."""
    alpha = Image.new("L", im.size)
    alpha.putdata([(i * 37) % 256 if i % 3 else 0 for i in range(im.width * im.height)])
    im.putalpha(alpha)
    return im


def add(name, content, read=True, to=None):
    if names and name not in names:
        return
    open(f"{folder}/{name}", "wb").write(content)
    if not read:
        return
    im = ImageOps.exif_transpose(Image.open(io.BytesIO(content)))
    if im.mode.startswith("I;16"):  # whose conversion depends on the version
        values = im.tobytes()[0 if im.mode == "I;16B" else 1 :: 2]
        im = Image.frombytes("L", im.size, values)
    im = im.convert("RGB")
    if to:
        im = im.resize(to, Image.Resampling.BILINEAR)
    im.save(f"{folder}/{name}.png")


def save(name, im, read=True, to=None, **options):
    b = io.BytesIO()
    ext = name.rsplit(".")[-1]
    im.save(b, {"jpg": "JPEG", "tif": "TIFF"}.get(ext, ext.upper()), **options)
    add(name, b.getvalue(), read, to)
    return b.getvalue()


def oriented(o):
    exif = Image.Exif()
    exif[0x0112] = o
    return exif


def png16(kind, channels, transparent=None):
    """A PNG of 16 bits, which Pillow does not write."""
    w, h = 13, 9
    rows = b"".join(b"\0" + bytes(noise.randrange(256) for _ in range(2 * channels * w)) for _ in range(h))
    if transparent:
        rows = rows[:1] + transparent + rows[1 + len(transparent) :]
    out = b"\x89PNG\r\n\x1a\n"
    for chunk, content in (
        (b"IHDR", struct.pack(">IIBBBBB", w, h, 16, kind, 0, 0, 0)),
        (b"tRNS", transparent),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    ):
        if content is not None:
            out += struct.pack(">I", len(content)) + chunk + content + struct.pack(">I", zlib.crc32(chunk + content))
    return out


photo = picture(37, 29)
gray, indexed, line = photo.convert("L"), photo.quantize(200), photo.convert("1")
sixteen = Image.frombytes("I;16", (13, 9), bytes(noise.randrange(256) for _ in range(2 * 13 * 9)))

# PNG
for mode in ("RGB", "L", "1"):
    save(f"{mode}.png", photo.convert(mode))
save("rgba.png", clear(photo.copy()))
save("la.png", clear(gray.copy()))
for bits in (1, 2, 4, 8):
    few = photo.quantize(2**bits)
    save(f"palette{bits}.png", few, bits=bits)
    save(f"palette{bits}-clear.png", few, bits=bits, transparency=1)
save("rgb-clear.png", photo, transparency=photo.getpixel((3, 3)))
save("gray-clear.png", gray, transparency=gray.getpixel((3, 3)))
save("gray16.png", sixteen)
add("rgb16.png", png16(2, 3))
add("rgba16.png", png16(6, 4))
add("la16.png", png16(4, 2))
add("rgb16-clear.png", png16(2, 3, b"\xab\xcd\x12\x34\x56\x78"))
save("moving.png", photo, save_all=True, append_images=[picture(37, 29)])
for o in (3, 6):
    save(f"turned{o}.png", photo, exif=oriented(o))

# JPEG
for sampling in ("4:4:4", "4:2:2", "4:2:0"):
    for quality in (30, 90):
        for progressive in (False, True):
            name = f"{sampling.replace(':', '')}-{quality}{'-progressive' if progressive else ''}.jpg"
            save(name, photo, quality=quality, subsampling=sampling, progressive=progressive)
for w, h in ((1, 1), (2, 2), (3, 5), (5, 3), (4, 6), (6, 4), (16, 16), (17, 33), (64, 48)):
    save(f"{w}x{h}.jpg", picture(w, h), quality=85, subsampling="4:2:0")
square = picture(64, 64)
for name, sampling, change in (("440", "4:2:2", (b"\x01\x21", b"\x01\x12")), ("411", "4:2:0", (b"\x01\x22", b"\x01\x41"))):
    b = io.BytesIO()
    square.save(b, "JPEG", subsampling=sampling)
    head, rest = b.getvalue().split(b"\xff\xc0", 1)
    add(f"{name}.jpg", head + b"\xff\xc0" + rest.replace(*change, 1))
save("gray.jpg", gray)
save("gray-progressive.jpg", gray, progressive=True)
save("cmyk.jpg", photo.convert("CMYK"), quality=90)
save("rgb.jpg", photo, keep_rgb=True, quality=90)
save("restart.jpg", photo, restart_marker_blocks=2)
for o in range(1, 9):
    save(f"turned{o}.jpg", photo, exif=oriented(o))
xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="8"/></x:xmpmeta>'
save("turned-xmp.jpg", photo, xmp=xmp)
save("turned-both.jpg", photo, xmp=xmp, exif=oriented(1))
save("scaled.jpg", picture(100, 80), to=(24, 32), exif=oriented(6), quality=95)
save("scaled.png", picture(20, 16), to=(33, 47))

# TIFF
for compression in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"):
    for mode, im in (("1", line), ("L", gray), ("P", indexed), ("RGB", photo), ("RGBA", clear(photo.copy())), ("I16", sixteen)):
        save(f"{compression}-{mode}.tif", im, compression=compression)
for compression in ("group3", "group4"):
    save(f"{compression}.tif", line, compression=compression)
    save(f"{compression}-white.tif", line, compression=compression, tiffinfo={262: 0})
save("white.tif", gray, tiffinfo={262: 0})
save("I16B.tif", Image.frombytes("I;16B", (13, 9), sixteen.tobytes()))
for o in (2, 5, 8):
    save(f"turned{o}.tif", photo, tiffinfo={274: o})
for mode, options in (("CMYK", {}), ("LA", {}), ("F", {}), ("I", {}), ("YCbCr", {}), ("RGB", {"compression": "jpeg"})):
    save(f"refused-{mode}.tif", photo.convert(mode), read=False, **options)

# GIF
save("palette.gif", indexed)
save("gray.gif", gray)
save("line.gif", line)
save("plain.gif", indexed, interlace=0)
save("clear.gif", indexed, transparency=indexed.getpixel((2, 2)))
save("moving.gif", indexed, save_all=True, append_images=[picture(37, 29)], transparency=7, disposal=2)
for name, flag in (("wide.gif", None), ("wide-clear.gif", 9)):
    b = io.BytesIO()
    indexed.save(b, "GIF", **({} if flag is None else {"transparency": flag}))
    add(name, b.getvalue()[:6] + struct.pack("<HH", 41, 31) + b.getvalue()[10:])

# BMP
for mode, im in (("1", line), ("L", gray), ("P", indexed), ("RGB", photo), ("RGBA", clear(photo.copy()))):
    save(f"{mode}.bmp", im)

# WebP
for quality in (1, 50, 80, 100):
    save(f"lossy{quality}.webp", photo, quality=quality)
for w, h in ((1, 1), (2, 3), (3, 2), (16, 16), (33, 17)):
    save(f"{w}x{h}.webp", picture(w, h))
save("lossy-clear.webp", clear(photo.copy()), exact=True)
save("lossless.webp", photo, lossless=True)
save("lossless-clear.webp", clear(photo.copy()), lossless=True, exact=True)
save("gray.webp", gray)
for o in (4, 7):
    save(f"turned{o}.webp", photo, exif=oriented(o))
save("turned-lossless.webp", photo, exif=oriented(6), lossless=True)
for name, options in (("moving", {}), ("moving-lossless", {"lossless": True})):
    save(f"{name}.webp", photo, save_all=True, append_images=[picture(37, 29)], **options)
save("moving-clear.webp", clear(photo.copy()), save_all=True, append_images=[clear(picture(37, 29))], exact=True)

# Pictures of which a part may be decoded alone
tall = picture(24, 150)
save("tall.webp", tall, quality=60)
save("tall-icc.webp", tall, quality=60, icc_profile=b"\0" * 128)
save("tall.jpg", tall, quality=70)
save("tall-progressive.jpg", tall, quality=70, progressive=True)
sparse = Image.new("RGB", (24, 150))  # of long runs of blocks without coefficients
for y in (2, 20, 100, 140):
    sparse.paste(picture(24, 4), (0, y))
save("sparse-progressive.jpg", sparse, quality=70, progressive=True)
