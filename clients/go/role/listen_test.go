package role

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSocketIsForThisUserAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "role.sock")
	listener, target, err := listen(unixScheme + path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	found, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if mode := found.Mode().Perm(); mode != 0o600 {
		t.Errorf("its mode is %o", mode)
	}
	if target != unixScheme+path {
		t.Errorf("its target is %s", target)
	}
}

func TestSocketOfAProcessThatWasKilledIsReplacedAndOneInUseIsNot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "role.sock")
	dead, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = dead.Close()
	living, _, err := listen(unixScheme + path)
	if err != nil {
		t.Fatal(err)
	}
	defer living.Close()
	if _, _, err := listen(unixScheme + path); reasonIn(err) != ReasonInvalidConfig {
		t.Errorf("a socket in use is taken: %v", err)
	}
}

func TestPortZeroIsAFreeOne(t *testing.T) {
	listener, target, err := listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if target != listener.Addr().String() || strings.HasSuffix(target, ":0") {
		t.Errorf("its target is %s", target)
	}
}

func TestDefaultTargetIsInTheRuntimeDirectory(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "run")
	t.Setenv(RuntimeDir, folder)
	target, err := defaultTarget("splitter", "splitter-0")
	if err != nil {
		t.Fatal(err)
	}
	if target != unixScheme+folder+"/splitter-splitter-0.sock" {
		t.Errorf("it is %s", target)
	}
	if _, err := defaultTarget("splitter", "../elsewhere"); reasonIn(err) != ReasonInvalidConfig {
		t.Errorf("it may be elsewhere: %v", err)
	}
}

func TestRuntimeDirectoryThatOthersCanEnterIsRefused(t *testing.T) {
	folder := t.TempDir()
	open := filepath.Join(folder, "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(folder, "link")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{open, link} {
		t.Setenv(RuntimeDir, name)
		if _, err := runtimeDir(); reasonIn(err) != ReasonInvalidConfig {
			t.Errorf("%s is taken: %v", name, err)
		}
	}
}
