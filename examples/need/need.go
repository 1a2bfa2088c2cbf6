// Package need is how a test declares its needs of the machine. Where one is missing the
// test is skipped with the words "not run:" and the reason, which `make test` counts and
// repeats at its end; with COMPLETE=yes, as .ci/run calls it, that is a failure.
//
// It must not know particular tests.
package need

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// NotRun begins the reason of each test that this machine cannot run.
const NotRun = "not run: "

// Root skips the test without root.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip(NotRun + "it needs root")
	}
}

// Programs skips the test where one of the programs is not installed.
func Programs(t testing.TB, names ...string) {
	t.Helper()
	if missing := Missing(names...); missing != "" {
		t.Skip(NotRun + "it needs " + missing)
	}
}

// Missing returns which of the programs are not installed, as words of a sentence, or "".
func Missing(names ...string) string {
	var missing []string
	for _, name := range names {
		if _, err := exec.LookPath(name); err == nil {
			continue
		}
		// The PATH of a user often lacks the directory of daemons.
		if _, err := exec.LookPath("/usr/sbin/" + name); err != nil {
			missing = append(missing, name)
		}
	}
	switch len(missing) {
	case 0:
		return ""
	case 1:
		return missing[0] + ", which is not installed"
	default:
		return strings.Join(missing, ", ") + ", which are not installed"
	}
}
