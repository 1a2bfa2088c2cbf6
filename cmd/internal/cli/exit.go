package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// ExitError ends the program with Code. Err may be nil when the command has
// printed everything already.
type ExitError struct {
	Code int
	Err  error
}

// Usage is an error in how a command was called: exit status 2.
func Usage(err error) error { return &ExitError{Code: 2, Err: err} }

// Exit ends the program with a code and prints nothing.
func Exit(code int) error { return &ExitError{Code: code} }

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// Main runs the command that the program was called with, until it ends or the
// program is interrupted, and returns the exit code: that of an ExitError, and 2 for
// an error of cobra, which is an error in the call.
func Main(root *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := root.ExecuteContext(ctx)
	code := 2
	var exit *ExitError
	if errors.As(err, &exit) {
		if code = exit.Code; exit.Err == nil {
			return code
		}
	}
	if err == nil {
		return 0
	}
	fmt.Fprintf(root.ErrOrStderr(), "%s: %s\n", root.Name(), VisibleLines(err.Error())) // it may name files of an estate
	return code
}

// WrapErrors gives code 1 to each error of a command and its subcommands that is no
// ExitError. Errors of cobra itself stay unchanged.
func WrapErrors(cmd *cobra.Command) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			err := run(cmd, args)
			var exit *ExitError
			if err == nil || errors.As(err, &exit) {
				return err
			}
			return &ExitError{Code: 1, Err: err}
		}
	}
	for _, sub := range cmd.Commands() {
		WrapErrors(sub)
	}
}
