package role

import (
	"bytes"
	"errors"
	"flag"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestArgumentsAreSettings(t *testing.T) {
	settings, level, err := parseArguments("splitter", []string{
		"--role", "splitter", "--replica-id", "s-1", "--registry", "unix:/r.sock,b:1", "--listen", "127.0.0.1:0",
		"--advertise", "here:1", "--max-activations", "7", "--drain-grace", "1.5", "--node", "n", "--log-level", "DEBUG",
	}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	want := Settings{
		Role: "splitter", ReplicaID: "s-1", Registry: "unix:/r.sock,b:1", Listen: "127.0.0.1:0", Advertise: "here:1",
		MaxActivations: 7, DrainGrace: 1500 * time.Millisecond, Node: "n",
		Heartbeat: 500 * time.Millisecond, CleanupGrace: time.Second,
	}
	if settings != want || level != slog.LevelDebug {
		t.Errorf("%+v, %s", settings, level)
	}
}

func TestReplicaWithoutANameIsNamedAfterItsProcess(t *testing.T) {
	settings, _, err := parseArguments("splitter", []string{"--role", "r"}, &bytes.Buffer{})
	if err != nil || settings.ReplicaID != "r-"+strconv.Itoa(os.Getpid()) {
		t.Errorf("%q, %v", settings.ReplicaID, err)
	}
}

func TestArgumentsThatAreNoneAreNamed(t *testing.T) {
	for wrong, arguments := range map[string][]string{
		"-colour":         {"--colour", "red"},
		"stray":           {"--role", "r", "stray"},
		"log-level":       {"--log-level", "LOUD"},
		"max-activations": {"--max-activations", "many"},
	} {
		var out bytes.Buffer
		_, _, err := parseArguments("splitter", arguments, &out)
		if err == nil || !strings.Contains(out.String(), wrong) {
			t.Errorf("%v: %v, %s", arguments, err, out.String())
		}
	}
	if _, _, err := parseArguments("splitter", []string{"--help"}, &bytes.Buffer{}); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("--help: %v", err)
	}
}

func TestParentThatIsNoProcessIsRefused(t *testing.T) {
	t.Setenv(ParentPID, "mother")
	if err := dieWithParent(); reasonIn(err) != ReasonInvalidConfig {
		t.Errorf("it is taken: %v", err)
	}
}
