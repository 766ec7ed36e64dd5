# The two commands of the README, and a few more. Everything they do is in scripts/ and bench/peers/.

.PHONY: help run test check bench-check system peers prerequisites install

help:
	@echo "make run            build, mount ./pando-data at ./mnt, work on it, kill it, verify it"
	@echo "make test           every test (as CI runs it); ends with 'N passed, N failed'"
	@echo "make check          formatting, clippy, tidy and unit tests only"
	@echo "make system         tests on real mounts only (root, /dev/fuse)"
	@echo "make bench-check    short benchmarks against floors: finds gross slow-downs only"
	@echo "make peers          install CephFS, JuiceFS and MooseFS for bench/peers/run.sh; no test needs it"
	@echo "make install        build for use; install pando, mount.fuse.pando, man pages (PREFIX, DESTDIR)"
	@echo "make prerequisites  install what the above need"

run:
	@scripts/run.sh

test:
	@scripts/test.sh

check:
	@scripts/test.sh fmt clippy tidy units

system:
	@scripts/test.sh system

bench-check:
	@scripts/bench-check.sh

peers:
	@bench/peers/prepare.sh

prerequisites:
	@scripts/install-prerequisites.sh --tests

install:
	@scripts/install.sh
