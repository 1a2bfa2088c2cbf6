package daemon_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"testing"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/daemon"
	"berth/cmd/internal/inspect"
	"berth/cmd/internal/localestate"
	"berth/cmd/internal/localplan"
)

// TestMain serves the estate of a configuration where the environment asks for it, so
// that a test has a daemon in a process of its own that it can kill.
func TestMain(m *testing.M) {
	if path := os.Getenv("BERTH_TEST_SERVE"); path != "" {
		s, err := daemon.New([]string{path}, slog.New(slog.DiscardHandler))
		if err == nil {
			err = s.Serve(context.Background(), nil)
		}
		panic(err)
	}
	daemon.ReadingCommands = readingCommands
	debug.SetGCPercent(400) // the servers of the forge leave much garbage
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil { // the tests wait most of their time
		panic(err)
	}
	os.Exit(m.Run())
}

// readingCommands writes what berth events, audit list, audit verify and plan print of a
// repository. The packages behind them import the daemon.
func readingCommands(ctx context.Context, dir string, out io.Writer) error {
	source := inspect.Source{Repo: dir}
	for _, form := range []string{"text", "json"} {
		output := cli.Output{Form: form}
		err := source.Events(ctx, output.Entries(out, inspect.EventColumns()...), out, inspect.EventFilter{}, false)
		err = errors.Join(err, source.With(ctx, func(r *inspect.Repository) error {
			err := r.ListAudit(ctx, output.Entries(out, inspect.AuditColumns()...), out, inspect.AuditFilter{})
			verified, unverified := r.VerifyAudit(ctx, out)
			return errors.Join(err, unverified, output.Print(out, verified))
		}))
		if err != nil {
			return err
		}
	}
	loader, err := localestate.NewLoader()
	if err != nil {
		return err
	}
	proposal, err := (&localplan.Request{Repo: dir, Base: "main", Head: "change"}).Plan(ctx, loader, nil)
	return errors.Join(err, json.NewEncoder(out).Encode(proposal))
}
