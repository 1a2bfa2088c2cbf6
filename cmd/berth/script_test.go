package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"berth": func() { os.Exit(run()) }})
}

// The scripts test the commands. $LAB is examples/lab, $CHANGES is
// examples/lab-changes, $CAMPUS is examples/campus, $CHEMISTRY is
// examples/lab-chemistry.
func TestScripts(t *testing.T) {
	lab, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			env.Setenv("LAB", lab+"/../../examples/lab")
			env.Setenv("CAMPUS", lab+"/../../examples/campus")
			env.Setenv("CHEMISTRY", lab+"/../../examples/lab-chemistry")
			env.Setenv("CHANGES", lab+"/../../examples/lab-changes")
			return nil
		},
	})
}
