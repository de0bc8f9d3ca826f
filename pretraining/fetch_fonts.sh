#!/bin/sh
# Fetch the fonts named in fonts.txt, or in another list, from Debian packages into a folder:
#   sh pretraining/fetch_fonts.sh runs/fonts [LIST]
# Needs apt-get and dpkg; nothing is installed. fonts.txt holds FOLDER/FILE, and the package is fonts-FOLDER.
set -eu
target=$1
list=${2:-$(dirname "$0")/fonts.txt}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cut -d/ -f1 "$list" | sort -u | while read -r folder; do
    package=fonts-$folder
    (cd "$work" && apt-get download -q "$package" >/dev/null && dpkg -x "$package"_*.deb "$package")
    mkdir -p "$target/$folder"
    cp "$work/$package/usr/share/doc/$package/copyright" "$target/$folder/"
    grep "^$folder/" "$list" | cut -d/ -f2- | while read -r name; do
        # Some packages hold the same name in several folders: the first in alphabetical order.
        found=$(find "$work/$package" -type f -name "$name" | LC_ALL=C sort | head -n 1)
        cp "$found" "$target/$folder/"
    done
    rm -rf "${work:?}/$package"
done
