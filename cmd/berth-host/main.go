// Command berth-host is Berth's helper on a host. It runs as root, started by a
// forced command of SSH through one line of sudoers, and does the typed
// operations that its compiled-in profiles allow (package agent). It takes no
// option that could widen them.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"berth/runtimes/backends"
	"berth/runtimes/host/agent"
)

const (
	// digestFile names the one program that may replace this one.
	digestFile = "/etc/berth/berth-host.sha256"

	usage = `berth-host            serve one session on stdin and stdout
berth-host replace    put the program on stdin in this one's place, if
                      ` + digestFile + ` holds its sha256
berth-host version    say which build this is
`
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "berth-host:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	// A host's memory belongs to its jobs.
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(10 << 20)
	switch strings.Join(args, " ") {
	case "":
		if os.Geteuid() != 0 {
			return fmt.Errorf("it serves as root; start it with sudo -n")
		}
		a := agent.New(agent.Options{Profiles: backends.Profiles(), Version: version()})
		ctx, cancel := agent.WhileHeard(context.Background(), os.Stdout)
		defer cancel()
		return a.Serve(ctx, os.Stdin, os.Stdout)
	case "replace":
		self, err := os.Executable()
		if err != nil {
			return err
		}
		return agent.Replace(os.Stdin, self, digestFile)
	case "version":
		fmt.Println(version())
		return nil
	}
	return fmt.Errorf("unknown arguments\n%s", bytes.TrimSpace([]byte(usage)))
}

// version is the commit this was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	revision, modified := info.Main.Version, ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "+"
		}
	}
	return revision + modified
}
