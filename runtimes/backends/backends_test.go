package backends_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"berth/runtimes/backends"
	"berth/runtimes/host/hosttest"
	"berth/runtimes/host/lab"
)

// programs is the directory with the built commands.
var programs string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "berth-second")
	if err != nil {
		panic(err)
	}
	programs = dir
	status := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(status)
}

// A second runtime needs two files: its own package and a line in the list. The test
// adds both to a build of the commands.
func TestSecondRuntimeTouchesTwoFiles(t *testing.T) {
	berth := buildWithSecond(t, "berth")

	estate := filepath.Join(t.TempDir(), "estate")
	command(t, ".", berth, "init", estate)
	replace(t, estate, "platform/catalog/slurm/22-05.yaml", "runtime_backend: slurm", "runtime_backend: ray")
	replace(t, estate, "platform/catalog/slurm/22-05.yaml",
		"      partitions:\n        - name: main\n          default: true\n          max_time_minutes: 1440\n      identity: managed #",
		"      color: green #")
	out, err := exec.Command(berth, "validate", estate).CombinedOutput()
	require.Error(t, err, "the definition of the second runtime has no green")
	require.Contains(t, string(out), "color")
	replace(t, estate, "platform/catalog/slurm/22-05.yaml", "color: green", "color: blue")
	command(t, estate, berth, "validate", ".")

	replace(t, estate, "berth.yaml", "memory_runtime:\n  directory: .berth/memory\n  backends: [slurm]",
		startHosts(t, estate))
	command(t, estate, "git", "init", "-q", "-b", "main")
	commit := []string{"-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "-m", "estate"}
	command(t, estate, "git", "add", ".", ":!tenants/physics/projects/lattice/instances")
	command(t, estate, "git", commit...)
	require.Contains(t, command(t, estate, berth, "plan"), "second runtime: create")
	command(t, estate, "git", "add", ".")
	command(t, estate, "git", commit...)
	command(t, estate, berth, "sync", "-c", "berth.yaml", "--once", "--timeout", "60s")
	require.Contains(t, command(t, estate, berth, "status"), "running")
}

func TestHelperAllowsWhatSecondRuntimeNeeds(t *testing.T) {
	hosttest.NeedLab(t)
	for path, allowed := range map[string]bool{"/etc/second": true, "/etc/third": false} {
		cmd := exec.Command(buildWithSecond(t, "berth-host"))
		cmd.Stdin = strings.NewReader(
			`{"id":1,"stamp":{"epoch":0,"commit":"","correlation_id":""},"timeout_ms":5000,"ops":[{"stat":{"paths":["` + path + `"]}}]}` +
				"\n",
		)
		out, err := cmd.Output()
		require.NoError(t, err)
		require.Equal(t, allowed, !bytes.Contains(out, []byte(`"refused"`)), "%s", out)
	}
}

func TestProfileHasTheNameOfItsBackend(t *testing.T) {
	for i, p := range backends.Profiles() {
		require.Equal(t, backends.Names()[i], p.Name)
	}
}

// buildWithSecond builds a command with the runtime of testdata in the list, once for all tests.
func buildWithSecond(t *testing.T, name string) string {
	t.Helper()
	program := filepath.Join(programs, name)
	if _, err := os.Stat(program); err == nil {
		return program
	}
	dir := t.TempDir()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	list, err := os.ReadFile("backends.go")
	require.NoError(t, err)
	changed := strings.NewReplacer(
		`"berth/runtimes/slurm"`, "\"berth/runtimes/second\"\n\t\"berth/runtimes/slurm\"",
		"slurm.Backend{},", "slurm.Backend{}, second.Backend{},",
	).Replace(string(list))
	require.Equal(t, 2, strings.Count(changed, "second.Backend{}")+strings.Count(changed, "runtimes/second"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "list.go"), []byte(changed), 0o600))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(root, "runtimes/backends/backends.go"): filepath.Join(dir, "list.go"),
		filepath.Join(root, "runtimes/second/second.go"):     filepath.Join(root, "runtimes/backends/testdata/second.go"),
	}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
	command(t, root, "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-ldflags", "-s -w", "-o", program, "./cmd/"+name)
	return program
}

var (
	nameOfNode = regexp.MustCompile(`(?m)^  name: (\S+)$`)
	address    = regexp.MustCompile(`(?m)^  address: \S+$`)
)

// startHosts starts a host for each Node document of an estate, writes its address there, and returns the section ssh of berth.yaml.
// The second runtime asks nothing of a host, but members are placed on nodes whose hosts answer.
func startHosts(t *testing.T, estate string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(estate, "platform/nodes/*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var nodes []lab.Node
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		name := nameOfNode.FindSubmatch(data)
		require.NotNil(t, name, "%s", file)
		nodes = append(nodes, lab.Node{Name: string(name[1])})
	}
	l, _ := hosttest.Lab(t, nodes...)
	for i, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		n, ok := l.Node(nodes[i].Name)
		require.True(t, ok)
		require.NoError(t, os.WriteFile(file, address.ReplaceAll(data, []byte("  address: "+n.Address)), 0o600))
	}
	return "ssh: {user: " + l.User() + ", key: " + l.KeyFile() + ", known_hosts: " + l.KnownHosts() + "}"
}

// command runs a program in dir and returns what it printed.
func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %s:\n%s", name, strings.Join(args, " "), out)
	return string(out)
}

// replace changes the one place in a file of the estate where old is.
func replace(t *testing.T, estate, file, old, text string) {
	t.Helper()
	path := filepath.Join(estate, file)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(data), old), "%s in %s", old, file)
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(data), old, text, 1)), 0o600))
}
