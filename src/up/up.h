/*
 * up.h - `sherd up`: a whole cluster on this machine, out of processes of this same program.
 */
#pragma once

/* `argv` holds what follows the sub-command. Returns the exit code of the process. */
int up_run(int argc, char **argv);
