#!/usr/bin/env bash
# Installs the Debian packages that a target needs and that are missing: install-packages.sh build|test
set -euo pipefail

build_packages=(gcc g++ cmake ninja-build pkg-config libwiredtiger-dev libbson-dev libssl-dev libpcre2-dev
    libicu-dev libintelrdfpmath-dev libsnappy-dev libzstd-dev zlib1g-dev libyaml-dev
    tzdata) # the last is for running: time zones are read from it
test_packages=(clang clang-format libclang-rt-dev libmongoc-dev python3 python3-pymongo nodejs npm)

packages=("${build_packages[@]}")
if [ "${1:-build}" = test ]; then
    packages+=("${test_packages[@]}")
fi

missing=()
for package in "${packages[@]}"; do
    # A tool that is there by another way (a newer Node.js, say) is as good as the package.
    case "$package" in
    nodejs) command -v node > /dev/null && continue ;;
    npm) command -v npm > /dev/null && continue ;;
    esac
    dpkg-query -W -f '${Status}' "$package" 2> /dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

echo "installing Debian packages: ${missing[*]}"
sudo=""
[ "$(id -u)" -eq 0 ] || sudo=sudo
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -qq
$sudo apt-get install -y -qq "${missing[@]}" > /dev/null
