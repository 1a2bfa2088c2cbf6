package cli

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// pager is a writer whose text a program shows on a terminal.
type pager struct {
	io.Writer
	terminal *os.File
}

// terminalOf returns the terminal that shows the text of w, or nil.
func terminalOf(w io.Writer) *os.File {
	switch w := w.(type) {
	case *pager:
		return w.terminal
	case *os.File:
		if _, err := unix.IoctlGetTermios(int(w.Fd()), unix.TCGETS); err == nil {
			return w
		}
	}
	return nil
}

// IsTerminal reports whether a terminal shows the text of w.
func IsTerminal(w io.Writer) bool { return terminalOf(w) != nil }

// columnsOf returns the width of the terminal that shows the text of w; 0: without a terminal, or
// without an answer.
func columnsOf(w io.Writer) int {
	t := terminalOf(w)
	if t == nil {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(t.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// Paged writes text. On a terminal, a pager shows text that is longer than the screen, as Git does:
// $PAGER, else less. It writes without a pager if PAGER is cat, or if the program is not installed.
func Paged(out io.Writer, write func(io.Writer) error) error {
	terminal := terminalOf(out)
	program, given := os.LookupEnv("PAGER")
	if !given {
		program = "less"
	}
	words := strings.Fields(program)
	if terminal == nil || len(words) == 0 || program == "cat" || slices.Contains([]string{"", "dumb"}, os.Getenv("TERM")) {
		return write(out)
	}
	if _, err := exec.LookPath(words[0]); err != nil {
		return write(out)
	}
	cmd := exec.Command("sh", "-c", program)
	cmd.Env = os.Environ()
	if _, set := os.LookupEnv("LESS"); !set {
		cmd.Env = append(cmd.Env, "LESS=FRX") // ends at once where the text fits, keeps colors and the screen
	}
	cmd.Stdout, cmd.Stderr = terminal, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return write(out)
	}
	err = write(&pager{in, terminal})
	if errors.Is(err, syscall.EPIPE) { // the reader has seen enough
		err = nil
	}
	return errors.Join(err, in.Close(), ignoreExit(cmd.Wait()))
}

// ignoreExit drops the exit status of a pager: the command has not failed.
func ignoreExit(err error) error {
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return nil
	}
	return err
}
