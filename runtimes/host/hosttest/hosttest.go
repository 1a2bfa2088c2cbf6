// Package hosttest brings up lab hosts for tests, with the real berth-host
// behind their sshd, and takes them away after. A test that uses it needs root,
// and says so where it has none.
//
// It must not know what a test does on the hosts.
package hosttest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/runtimes"
	"berth/runtimes/host"
	"berth/runtimes/host/lab"
)

// Unprivileged is the environment variable with which `make test-unprivileged`
// leaves out the tests that need root.
const Unprivileged = "BERTH_UNPRIVILEGED"

// NeedRoot ends the test where it is not root: with a failure that says what to
// do, or left out where that was asked for.
func NeedRoot(t testing.TB) {
	t.Helper()
	if os.Getenv(Unprivileged) != "" {
		t.Skip(Unprivileged + " is set: what needs root is left out")
	}
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root; `make test-unprivileged` leaves it out")
	}
}

// Helper builds berth-host as it is released and gives its path.
func Helper(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "berth-host")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "berth/cmd/berth-host")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build berth-host: %v\n%s", err, out)
	}
	return path
}

// Processes are the command lines, words parted by blanks, of those processes
// on this machine that have text in theirs. Lab hosts are of this machine.
func Processes(t testing.TB, text string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			continue // it ended meanwhile
		}
		line := strings.TrimSpace(strings.ReplaceAll(string(data), "\x00", " "))
		if strings.Contains(line, text) {
			out = append(out, line)
		}
	}
	return out
}

// Lab brings up hosts on a subnet nobody else uses, and reaches them over SSH.
// A node needs a name; Lab.Node says which address it has. All of it is gone at
// the end of the test.
func Lab(t testing.TB, nodes ...lab.Node) (*lab.Lab, runtimes.Hosts) {
	t.Helper()
	NeedRoot(t)
	c := lab.Config{Dir: filepath.Join(t.TempDir(), "lab"), Helper: Helper(t), Auto: true}
	for i, n := range nodes {
		n.Address = fmt.Sprintf("10.77.0.%d", 10+i) // Auto keeps the last number
		c.Nodes = append(c.Nodes, n)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l, err := lab.Up(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := l.Down(ctx); err != nil {
			t.Error(err)
		}
	})
	hosts, err := host.NewSSH(host.SSHOptions{User: l.User(), KeyFile: l.KeyFile(), KnownHosts: l.KnownHosts()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := hosts.Close(); err != nil {
			t.Errorf("close hosts: %v", err)
		}
	})
	return l, hosts
}
