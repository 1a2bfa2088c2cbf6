// Command berth-host is Berth's helper on a host. A forced command of SSH starts it as
// root through one line of sudoers. It does the typed operations that its compiled-in
// profiles allow (package agent). No option extends them.
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
	// digestFile has the sha256 of the program that may replace this one.
	digestFile = "/etc/berth/berth-host.sha256"

	usage = `berth-host            serve one session on stdin and stdout
berth-host replace    replace this program with the one on stdin, if its
                      sha256 is in ` + digestFile + `
berth-host version    print the version
`
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "berth-host:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	// The host's memory is for its jobs.
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(10 << 20)
	switch strings.Join(args, " ") {
	case "":
		if os.Geteuid() != 0 {
			return fmt.Errorf("root is required; start it with sudo -n")
		}
		a := agent.New(agent.Options{Profiles: backends.Profiles(), Version: agent.Build()})
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
		fmt.Println(agent.Build())
		return nil
	}
	return fmt.Errorf("unknown arguments\n%s", bytes.TrimSpace([]byte(usage)))
}
