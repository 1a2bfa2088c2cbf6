package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"berth/cmd/internal/cli"
)

// TestMain puts this program into the path as berth, for the tests and scripts that start it.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "berth" {
		os.Exit(run())
	}
	code, err := runWithBerth(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runWithBerth(m *testing.M) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "berth-in-path-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if err := os.Symlink(self, filepath.Join(dir, "berth")); err != nil {
		return 0, err
	}
	if err := os.Setenv("PATH", dir+":"+os.Getenv("PATH")); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// runScripts runs the scripts of a directory. Their command berth runs in this process, which
// compiles the definitions once; `exec berth` starts a process, which can read its stdin.
func runScripts(t *testing.T, dir string, setup func(*testscript.Env) error) {
	dir, err := filepath.Abs(dir) // the working directory changes
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup:               setup,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"berth": inProcess()},
	})
}

// scriptVariables are the variables that a script may set for berth and its git.
var scriptVariables = []string{"HOME", "BERTH_SERVER", "BERTH_TOKEN", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM",
	"GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"}

// inProcess returns a script's command berth. The working directory and the environment are
// of the process, so that one command runs at a time.
func inProcess() func(*testscript.TestScript, bool, []string) {
	var mu sync.Mutex
	return func(ts *testscript.TestScript, neg bool, args []string) {
		mu.Lock()
		defer mu.Unlock()
		here, err := os.Getwd()
		ts.Check(err)
		ts.Check(os.Chdir(ts.MkAbs(".")))
		defer func() { ts.Check(os.Chdir(here)) }()
		for _, name := range scriptVariables {
			was, set := os.LookupEnv(name)
			ts.Check(os.Setenv(name, ts.Getenv(name)))
			defer func() {
				if set {
					ts.Check(os.Setenv(name, was))
				} else {
					ts.Check(os.Unsetenv(name))
				}
			}()
		}
		root := newRoot()
		root.SetArgs(args)
		root.SetOut(ts.Stdout())
		root.SetErr(ts.Stderr())
		if code := cli.Main(root); (code != 0) != neg {
			ts.Fatalf("berth %v: exit status %d", args, code)
		}
	}
}

// The scripts test the commands. $LAB is examples/lab, $CHANGES is
// examples/lab-changes, $CAMPUS is examples/campus, $CHEMISTRY is
// examples/lab-chemistry.
func TestScripts(t *testing.T) {
	lab, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	runScripts(t, "testdata/script", func(env *testscript.Env) error {
		env.Setenv("LAB", lab+"/../../examples/lab")
		env.Setenv("CAMPUS", lab+"/../../examples/campus")
		env.Setenv("CHEMISTRY", lab+"/../../examples/lab-chemistry")
		env.Setenv("CHANGES", lab+"/../../examples/lab-changes")
		return nil
	})
}
