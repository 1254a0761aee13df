package role

import (
	"os"
	"strconv"
	"syscall"
)

// ParentPID is the environment variable in which a supervisor tells a child whom it must not outlive.
const ParentPID = "OMNIFLOW_PARENT_PID"

// dieWithParent arranges that this process is killed when the parent that ParentPID names dies. Without the variable
// nothing is done: a process that a person has started may outlive the shell.
func dieWithParent() error {
	named := os.Getenv(ParentPID)
	if named == "" {
		return nil
	}
	parent, err := strconv.Atoi(named)
	if err != nil {
		return invalidConfig("%s is %q, not a process id", ParentPID, named)
	}
	signal := uintptr(syscall.SIGKILL)
	if _, _, code := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, signal, 0); code != 0 {
		return code
	}
	// The parent may have died before the line above; then no signal will come, and we have another parent by now.
	if os.Getppid() != parent {
		os.Exit(1)
	}
	return nil
}
