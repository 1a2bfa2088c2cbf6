package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"berth/cmd/internal/cli"
)

// Command is a command that is repeated on every change.
type Command struct {
	Name     string // of what is watched
	Scan     func() (Files, error)
	Run      func() error // an ExitError without a cause has printed everything already
	Out, Err io.Writer
	IsText   bool // Run prints text to Out, so that lines about changes may stand between
}

// Repeat runs a command, and runs it again on every change, until ctx ends. A usage
// error of the first run ends it. Other errors are printed: the next change may
// correct them.
func Repeat(ctx context.Context, c Command) error {
	out := c.Err
	if c.IsText {
		out = c.Out
	}
	log := func(line string) { fmt.Fprintf(out, "%s %s\n", time.Now().Format(time.TimeOnly), line) }
	first := true
	return New(c.Scan, log).Run(ctx, func(changed []string) error {
		if first {
			log(fmt.Sprintf("watching %s; interrupt to end", c.Name))
		} else {
			log(summarize(changed))
		}
		err := c.Run()
		var exit *cli.ExitError
		switch {
		case ctx.Err() != nil, err == nil:
		case errors.As(err, &exit) && exit.Err == nil:
		case first && exit != nil && exit.Code == 2:
			return err
		default:
			log(err.Error())
		}
		first = false
		return nil
	})
}

// summarize names the first changed paths.
func summarize(paths []string) string {
	const most = 3
	if n := len(paths); n > most {
		return fmt.Sprintf("%s and %d more changed", strings.Join(paths[:most], ", "), n-most)
	}
	return strings.Join(paths, ", ") + " changed"
}
