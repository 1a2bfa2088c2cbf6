package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// terminal returns a terminal of some columns, and a function that returns the next line written to it.
func terminal(t *testing.T, columns uint16) (*os.File, func() string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, master.Close()) })
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tty.Close()) })
	require.NoError(t, unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}))
	lines := bufio.NewReader(master)
	return tty, func() string {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		return strings.TrimRight(line, "\r\n")
	}
}

// On a terminal, text goes through the pager, which knows its width and colors. Elsewhere no pager runs.
func TestTextOnATerminalGoesThroughAPager(t *testing.T) {
	tty, line := terminal(t, 72)
	say := func(w io.Writer) error {
		_, err := fmt.Fprintln(w, columnsOf(w), HasColor(w))
		return err
	}
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	t.Setenv("PAGER", "sed s/^/paged:/")
	require.NoError(t, Paged(tty, say))
	require.Equal(t, "paged:72 true", line())
	for _, none := range []string{"cat", "", "no-such-pager -R"} {
		t.Setenv("PAGER", none)
		require.NoError(t, Paged(tty, say))
		require.Equal(t, "72 true", line())
	}
	t.Setenv("PAGER", "sed s/^/paged:/")
	var b strings.Builder
	require.NoError(t, Paged(&b, say))
	require.Equal(t, "0 false\n", b.String())

	// A reader who has seen enough ends the pager, which causes no error.
	t.Setenv("PAGER", "true")
	require.NoError(t, Paged(tty, func(w io.Writer) error {
		for range 100_000 {
			if _, err := fmt.Fprintln(w, "a long text"); err != nil {
				return err
			}
		}
		return nil
	}))
}

// In a width, the last column is wrapped, and the ones before it that do not fit are left out. The form
// wide has all of them.
func TestTableFitsTheWidth(t *testing.T) {
	table := func(width int) string {
		var b strings.Builder
		table := newTable(&b, false, "NAME", "PHASE", "NODES", "WHY")
		table.width = width
		table.Row("physics.lattice/train", "failed", "gpu-a,gpu-b,gpu-c", "the host gpu-a does not answer on port 22")
		table.Row("physics.lattice/eval", "running", "gpu-d", "")
		require.NoError(t, table.Flush())
		return b.String()
	}
	require.Equal(t, strings.Join([]string{
		"NAME                    PHASE     WHY",
		"physics.lattice/train   failed    the host gpu-a does not",
		"                                  answer on port 22",
		"physics.lattice/eval    running   -",
		"(NODES not shown; -o wide shows all)", "",
	}, "\n"), table(60))
	for _, line := range strings.Split(table(80), "\n") {
		require.LessOrEqual(t, len(line), 80)
	}
	require.Contains(t, table(80), "gpu-a,gpu-b,gpu-c")
	var b strings.Builder
	ranked := newTable(&b, false, "MONTH", "STATE", "COST")
	ranked.DropFirst("STATE")
	ranked.width = 20
	ranked.Row("2026-11", "closed", "12.50 EUR")
	require.NoError(t, ranked.Flush())
	require.Equal(t, "MONTH     COST\n2026-11   12.50 EUR\n(STATE not shown; -o wide shows all)\n", b.String())
	b.Reset()
	short := newTable(&b, false, "TIME", "EVENT", "REASON")
	short.width = 30
	short.Row("2026-11-27 16:27:55Z", "created", "")
	require.NoError(t, short.Flush())
	require.Equal(t, "TIME                   EVENT\n2026-11-27 16:27:55Z   created\n(REASON not shown; -o wide shows all)\n", b.String(),
		"a column without text goes first")
	require.Contains(t, table(0), "gpu-a,gpu-b,gpu-c   the host gpu-a does not answer on port 22\n")
	require.NotContains(t, table(0), "not shown")

	t.Setenv("PAGER", "")
	t.Setenv("NO_COLOR", "1")
	for form, want := range map[string]string{"text": "NAME                    WHY",
		"wide": "NAME                    NODES               WHY"} {
		tty, line := terminal(t, 60)
		o := Output{Form: form, fits: true}
		require.NoError(t, o.Print(tty, report{}))
		require.Equal(t, want, line())
	}
}

// report is a report with a wide table.
type report struct{}

func (report) Text(p *Page) error {
	t := p.Table("NAME", "NODES", "WHY")
	t.Row("physics.lattice/train", "gpu-a,gpu-b,gpu-c", "the host gpu-a does not answer")
	return t.Flush()
}
