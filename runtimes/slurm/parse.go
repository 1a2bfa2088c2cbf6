package slurm

import (
	"context"
	"fmt"
	"slices"

	"berth/runtimes"
	"berth/runtimes/slurm/cli"
	"berth/runtimes/slurm/profile"
)

// node is a node as the controller sees it.
type node = cli.Node

// queryOp returns the call of a query on this stack.
func queryOp[T any](c *control, q cli.Query[T]) runtimes.Op {
	if q.Program == "sacctmgr" {
		return c.sacctmgr(q.Args...)
	}
	op := c.cli(q.Program, q.Args...)
	if q.Program == "squeue" || q.Program == "sacct" || slices.Equal(q.Args, cli.Reservations().Args) {
		op.Run.Env["SLURM_TIME_FORMAT"] = "%s" // seconds, whatever the host's time zone is
		if slices.Contains(q.Args, profile.SnapshotFormat) {
			op.Run.Env["SLURM_BITSTR_LEN"] = "0" // otherwise it cuts off a list of tasks after 64 bytes
		}
	}
	return op
}

// decode decodes the result of a query's call.
func decode[T any](q cli.Query[T], res runtimes.Result) (T, error) {
	return q.Decode(cli.Answer{Exit: res.Exit, Stdout: res.Data, Stderr: res.Stderr})
}

// answer is decode with an error that names the host.
func answer[T any](s site, q cli.Query[T], res runtimes.Result) (T, error) {
	v, err := decode(q, res)
	if err != nil {
		return v, fmt.Errorf("host %s: %w", s.host.Name(), err)
	}
	return v, nil
}

// ask runs a query on this stack.
func ask[T any](ctx context.Context, c *control, q cli.Query[T]) (T, error) {
	res, err := c.do(ctx, queryOp(c, q))
	if err != nil {
		var none T
		return none, err
	}
	return answer(c.site, q, res[0])
}

// hashMatches reports whether the answer to cli.ShowConfig says that the running
// configuration is that of the file. An answer that says neither is not a match.
func hashMatches(res runtimes.Result) bool {
	config, err := decode(cli.ShowConfig(), res)
	return err == nil && config.Matches
}

// pingUp reports whether the answer to cli.Ping says that slurmctld is up.
func pingUp(res runtimes.Result) bool {
	up, err := decode(cli.Ping(), res)
	return err == nil && up
}
