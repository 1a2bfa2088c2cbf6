package host_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"berth/runtimes"
	"berth/runtimes/host/agent"
)

// base is the directory that the test profile allows on a lab host. On this machine it
// is a temporary directory.
const base = "/var/lib/conformance"

// TestMain acts as berth-host with the test profile if it is started under that name on
// a lab host, or with the argument serve on this machine.
func TestMain(m *testing.M) {
	switch {
	case filepath.Base(os.Args[0]) == "berth-host":
		os.Exit(serve(newAgent(base, "", "")))
	case len(os.Args) == 3 && os.Args[1] == "serve":
		os.Exit(serve(newAgent(os.Args[2], filepath.Join(os.Args[2], "state"), filepath.Join(os.Args[2], "etc"))))
	}
	os.Exit(m.Run())
}

func serve(a *agent.Agent) int {
	ctx, cancel := agent.WhileHeard(context.Background(), os.Stdout)
	defer cancel()
	if err := a.Serve(ctx, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func newAgent(dir, state, etc string) *agent.Agent {
	return agent.New(agent.Options{StateDir: state, EtcDir: etc, Version: "test", Profiles: []runtimes.Profile{{
		Name: "test", Paths: []string{dir, dir + "/**"},
		Programs: map[string]runtimes.Program{
			"sh":   {Path: "/bin/sh"},
			"look": {Path: "/bin/sh", Reads: func([]string) bool { return true }},
		},
		Services: map[string]func(string, map[string]string) (runtimes.ServiceSpec, error){
			"sleeper": func(unit string, _ map[string]string) (runtimes.ServiceSpec, error) {
				run := filepath.Join(dir, "run-"+unit)
				return runtimes.ServiceSpec{Path: "/usr/bin/sleep", Args: []string{"600"}, PIDFile: run + "/pid",
					RunDirs: []runtimes.MakeDir{{Path: run, Mode: 0o755}}}, nil
			},
		},
		IsUID: func(uid int) bool { return uid >= 2000 && uid <= 2999 },
	}}})
}
