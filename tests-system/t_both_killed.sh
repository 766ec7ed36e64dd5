# As `both`, while the server is killed and started again every three seconds: programs see a pause and no error.
KILLS=3
. "$(dirname "$0")/t_both.sh"
