# As `pjdfstest`, on a mount that its server is another process for.
VIA=socket
. "$(dirname "$0")/t_pjdfstest.sh"
