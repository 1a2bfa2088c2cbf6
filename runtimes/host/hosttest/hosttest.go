// Package hosttest makes lab hosts with the real berth-host for tests and removes them
// afterwards. Its tests need root.
//
// It must not know particular tests.
package hosttest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/examples/await"
	"berth/examples/need"
	"berth/runtimes"
	"berth/runtimes/host"
	"berth/runtimes/host/lab"
)

// Image returns the Debian suite of the lab hosts of tests, from the environment variable
// BERTH_LAB_IMAGE; "": this machine's own system.
func Image() string { return os.Getenv("BERTH_LAB_IMAGE") }

// NeedLab skips the test where this machine cannot run lab hosts.
func NeedLab(t testing.TB) {
	t.Helper()
	if why := LabImpossible(); why != "" {
		t.Skip(need.NotRun + "it needs lab hosts: " + why)
	}
}

// LabImpossible returns why this machine cannot run lab hosts, or "". It tries once.
var LabImpossible = sync.OnceValue(func() string {
	ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
	defer cancel()
	if err := lab.Possible(ctx); err != nil {
		return err.Error()
	}
	return ""
})

// Helper returns the path of a berth-host built with the flags of a release. The copy is
// the test's own; a test binary builds it once.
func Helper(t testing.TB) string {
	t.Helper()
	program, err := builtHelper()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "berth-host")
	if err := os.WriteFile(path, program, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// builtHelper is kept in memory: the directory of a test ends with that test, and others need the
// helper later.
var builtHelper = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "berth-host-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "berth-host")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "berth/cmd/berth-host")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build berth-host: %w\n%s", err, out)
	}
	return os.ReadFile(path)
})

// Processes returns the command lines, with spaces between words, that contain text.
// It finds processes on lab hosts too, as they run on this machine.
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
			continue // it has ended
		}
		line := strings.TrimSpace(strings.ReplaceAll(string(data), "\x00", " "))
		if strings.Contains(line, text) {
			out = append(out, line)
		}
	}
	return out
}

// Lab makes hosts on an unused subnet and reaches them over SSH until the end of the
// test. A node needs only a name; Lab.Node returns its address.
func Lab(t testing.TB, nodes ...lab.Node) (*lab.Lab, runtimes.Hosts) {
	t.Helper()
	NeedLab(t)
	c := lab.Config{Dir: filepath.Join(t.TempDir(), "lab"), Helper: Helper(t), Auto: true}
	for i, n := range nodes {
		n.Address = fmt.Sprintf("10.77.0.%d", 10+i) // Auto keeps the last number
		c.Nodes = append(c.Nodes, n)
	}
	ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
	defer cancel()
	l, err := lab.Up(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
		defer cancel()
		if err := l.Down(ctx); err != nil {
			t.Error(err)
		}
	})
	hosts, err := host.NewSSH(host.SSHOptions{
		User: l.User(), KeyFile: l.KeyFile(), KnownHosts: l.KnownHosts(),
		DialTimeout: time.Minute, KeepAlive: time.Minute, Margin: time.Minute,
	})
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
