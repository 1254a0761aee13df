package role

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const (
	exitFailed = 1
	exitUsage  = 2
	exitAtOnce = 130
	// exitMargin is for what comes after the grace of a drain, before the process is ended by force.
	exitMargin = 10 * time.Second
)

// Main is a role program: its command line, its signals, its exit status. SIGTERM and SIGINT drain it, the second one
// ends it at once. 2 is a mistake on the command line, or an address that cannot be used.
func Main(interfaces ...Interface) int {
	settings, level, err := parseArguments(os.Args[0], os.Args[1:], os.Stderr)
	if err == flag.ErrHelp {
		return 0
	}
	if err != nil {
		return exitUsage // the flags have said why
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})))
	if err := dieWithParent(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitUsage
	}
	server, err := Listen(settings, interfaces...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitUsage
	}
	ctx, cancel := context.WithCancel(context.Background())
	go drainOnSignal(cancel, settings.DrainGrace)
	if err := server.Run(ctx); err != nil {
		slog.Error("the listener broke", "error", err)
		return exitFailed
	}
	return 0
}

func drainOnSignal(drain func(), grace time.Duration) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	<-signals
	drain()
	select {
	case <-signals:
		os.Exit(exitAtOnce)
	case <-time.After(grace + exitMargin):
		os.Exit(exitFailed)
	}
}

// parseArguments takes the options that `python -m omniflow_roles serve` has too.
func parseArguments(program string, arguments []string, out io.Writer) (Settings, slog.Level, error) {
	settings := NewSettings("", "")
	level := slog.LevelInfo
	flags := flag.NewFlagSet(program, flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&settings.Role, "role", "", "role that graphs name, such as splitter")
	flags.StringVar(&settings.ReplicaID, "replica-id", "",
		"unique in the role and kept across restarts (default: role and process id)")
	flags.StringVar(&settings.Registry, "registry", "",
		"`targets` of control planes to register with, comma-separated, in turn (default: serve unregistered)")
	flags.StringVar(&settings.Listen, "listen", "", "`target` to serve on (default: a unix socket in the runtime directory)")
	flags.StringVar(&settings.Advertise, "advertise", "",
		"`target` under which others reach this process (default: what it listens on)")
	flags.IntVar(&settings.MaxActivations, "max-activations", settings.MaxActivations,
		"running and waiting, more are refused")
	grace := flags.Float64("drain-grace", settings.DrainGrace.Seconds(), "`seconds` for running work after SIGTERM")
	flags.StringVar(&settings.Node, "node", "", "name of this machine (default: its host name)")
	flags.TextVar(&level, "log-level", level, "DEBUG, INFO, WARN or ERROR")
	if err := flags.Parse(arguments); err != nil {
		return settings, level, err
	}
	if flags.NArg() > 0 {
		err := fmt.Errorf("unknown argument %q", flags.Arg(0))
		fmt.Fprintln(out, err)
		return settings, level, err
	}
	if settings.ReplicaID == "" {
		settings.ReplicaID = fmt.Sprintf("%s-%d", settings.Role, os.Getpid())
	}
	settings.DrainGrace = time.Duration(*grace * float64(time.Second))
	return settings, level, nil
}
