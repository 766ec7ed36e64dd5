# As `work`, on a mount that its server is another process for, while a second mount looks at everything all the time.
VIA=socket BESIDE=1
. "$(dirname "$0")/t_work.sh"
