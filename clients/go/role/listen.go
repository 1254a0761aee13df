package role

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// RuntimeDir is the environment variable with the folder for sockets.
const RuntimeDir = "OMNIFLOW_RUNTIME_DIR"

const (
	unixScheme = "unix:"
	// sun_path has 108 bytes on Linux, one of them the terminator.
	longestUnixPath = 107
)

// listen gives a listener on a target, and the target under which it is reached. Sockets are 0600, for this user alone.
func listen(target string) (net.Listener, string, error) {
	path, isUnix := strings.CutPrefix(target, unixScheme)
	if isUnix {
		listener, err := listenUnix(path)
		return listener, target, err
	}
	listener, err := net.Listen("tcp", target)
	if err != nil {
		return nil, "", invalidConfig("cannot listen on %s: it is in use, or no address of this machine", target)
	}
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		return nil, "", invalidConfig("%s is no host:port", target)
	}
	port := strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	return listener, net.JoinHostPort(host, port), nil
}

func listenUnix(path string) (net.Listener, error) {
	if len(path) > longestUnixPath {
		return nil, invalidConfig("%s has %d bytes, a socket's path at most %d; set %s to a shorter one",
			path, len(path), longestUnixPath, RuntimeDir)
	}
	listener, err := listenPrivately(path)
	if errors.Is(err, syscall.EADDRINUSE) && !isAnswered(path) {
		_ = os.Remove(path) // of a process that was killed
		listener, err = listenPrivately(path)
	}
	if err != nil {
		return nil, invalidConfig("cannot listen on %s: %v", path, err)
	}
	return listener, nil
}

// listenPrivately: the mask belongs to the whole process, and a socket must be private from its first moment.
func listenPrivately(path string) (net.Listener, error) {
	before := syscall.Umask(0o177)
	defer syscall.Umask(before)
	return net.Listen("unix", path)
}

func isAnswered(path string) bool {
	connection, err := net.Dial("unix", path)
	if err != nil {
		return false
	}
	_ = connection.Close()
	return true
}

// defaultTarget is a socket in the runtime directory.
func defaultTarget(role, replicaID string) (string, error) {
	folder, err := runtimeDir()
	if err != nil {
		return "", err
	}
	if strings.ContainsRune(replicaID, filepath.Separator) {
		return "", invalidConfig("the replica identifier %q is no name of a file; say where to listen", replicaID)
	}
	return unixScheme + filepath.Join(folder, role+"-"+replicaID+".sock"), nil
}

// runtimeDir is the folder for sockets, made with mode 0700. Whoever can replace a socket can read every call, so a folder
// that others own or can enter is refused.
func runtimeDir() (string, error) {
	folder, err := filepath.Abs(runtimeDirName())
	if err != nil {
		return "", invalidConfig("there is no folder for sockets; set %s", RuntimeDir)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", invalidConfig("%s cannot be made: %v", folder, err)
	}
	found, err := os.Lstat(folder) // not Stat: a link in a folder that all may write to is somebody else's choice
	if err != nil {
		return "", invalidConfig("%s cannot be looked at: %v", folder, err)
	}
	owner, isKnown := found.Sys().(*syscall.Stat_t)
	if !found.IsDir() || !isKnown || int(owner.Uid) != os.Getuid() || found.Mode().Perm()&0o077 != 0 {
		return "", invalidConfig("%s must be a folder of this user that nobody else can enter (mode 0700)", folder)
	}
	return folder, nil
}

func runtimeDirName() string {
	if own := os.Getenv(RuntimeDir); own != "" {
		return own
	}
	if session := os.Getenv("XDG_RUNTIME_DIR"); session != "" {
		return filepath.Join(session, "omniflow")
	}
	return filepath.Join(os.TempDir(), "omniflow-"+strconv.Itoa(os.Getuid()))
}
