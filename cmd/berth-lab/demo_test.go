package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/examples/await"
)

// programs is the directory of the built programs.
var programs string

func TestMain(m *testing.M) {
	if os.Getenv("BERTH_TEST_LAB") != "" { // the test binary is berth-lab too
		main()
		return
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "berth-programs-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		programs = dir
		cmd := exec.Command("go", "build", "-ldflags", "-s -w", "-o", dir, "berth/cmd/berth", "berth/cmd/berth-host")
		if out, err := cmd.CombinedOutput(); err != nil {
			panic(fmt.Sprintf("go build: %v\n%s", err, out))
		}
		flag.Parse()
		if err := flag.Set("test.parallel", "4"); err != nil { // the tests wait most of their time
			panic(err)
		}
		return m.Run()
	}())
}

// The demo also runs without hosts, and shows denied and held changes.
func TestDemoInMemory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "demo", "--memory", "--dir", dir, "--berth", filepath.Join(programs, "berth"),
		"--patience", await.Limit.String())
	cmd.Env = append(os.Environ(), "BERTH_TEST_LAB=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, said := range []string{
		"asks for 8 GPUs, at most 6 are allowed (tenants/physics/policy.yaml:6)",
		"held, unauthorised:",
		"M\ttenants/physics/projects/lattice/instances/train.yaml",
		"berth/in-force main: no difference",
		"whole: ",
		"Every step was verified.",
	} {
		require.Contains(t, string(out), said)
	}
	for _, said := range []string{`"msg":"document held"`, `"msg":"phase changed"`, `"msg":"plan application started"`,
		`"msg":"action ended"`} {
		require.Positive(t, linesFoundByIDs(t, filepath.Join(dir, "berth.log"), said), said)
	}
}

// linesFoundByIDs counts the lines of a daemon's log that contain a text. It checks
// that each line about a unit has the ids of the unit and of its cause
// (requirement A11).
func linesFoundByIDs(t *testing.T, file, text string) (n int) {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "berth: ") { // why it ended, on the terminal
			continue
		}
		var said map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &said), line)
		if strings.Contains(line, text) {
			n++
		}
		if said["unit"] == nil && said["action_id"] == nil && said["app_instance_id"] == nil {
			continue
		}
		ids := []string{"correlation_id", "org_id", "project_id", "app_slug", "app_instance_id"}
		// of a tenant or of the platform, and of no project
		if unit, _ := said["unit"].(string); strings.HasPrefix(unit, "SharedRuntime ") {
			ids = []string{"correlation_id", "app_slug", "shared_runtime_id"}
		}
		for _, id := range ids {
			value, ok := said[id].(string)
			require.True(t, ok && value != "", "%s of %s", id, line)
		}
	}
	return n
}
