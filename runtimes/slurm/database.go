package slurm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"berth/runtimes"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
)

// databaseServer is that of a control host, with the database of a stack in it.
type databaseServer struct{ *control }

// sql runs statements as soon as the server accepts connections, or returns why it ended.
func (c databaseServer) sql(ctx context.Context, statements string) error {
	op := sqlOp(statements)
	op.Run.TimeoutMS = int(c.env.timeouts.Ready.Milliseconds())
	return c.env.poll(ctx, "database on "+c.host.Name(), func(ctx context.Context) (bool, string, error) {
		res, err := c.do(ctx, c.service(profile.MariaDB, "state"), op)
		switch {
		case len(res) > 0 && !res[0].Service.Running:
			return false, "", errors.New("mariadbd ended: " + cmp.Or(res[0].Service.Detail, "its log gives no reason: "+profile.DatabaseLog))
		case err != nil:
			return false, "", err
		case res[1].Exit == 0:
			return true, "", nil
		}
		refusal := c.exitError(op, res[1])
		// 2002 and 2013: no server listens on the socket yet.
		if text := string(res[1].Stderr); strings.Contains(text, "ERROR 2002") || strings.Contains(text, "ERROR 2013") {
			return false, refusal.Error(), nil
		}
		return false, "", refusal
	})
}

// make makes the stack's own database, and first the server if the host has
// none. One stack of a host does so at a time.
func (c databaseServer) make(ctx context.Context) error {
	defer c.env.lock("host " + c.host.Name())()
	res, err := c.do(ctx, statOp(profile.DatabaseInstalled, profile.DatabaseData), c.service(profile.MariaDB, "state"))
	if err != nil {
		return err
	}
	if stats := res[0].Stats; !stats[0].Exists || !stats[1].Exists {
		if err := c.checkNoDatabase(ctx, res[1].Service.Running); err != nil {
			return err
		}
		_, err := c.do(ctx,
			removeTreeOp(profile.DatabaseData), // of an interrupted attempt
			ownDirOp(profile.DatabaseDir, 0o755, profile.DatabaseUser),
			ownDirOp(profile.DatabaseData, 0o700, profile.DatabaseUser),
			runtimes.Op{Run: &runtimes.Run{Program: "mariadb-install-db", Args: profile.InstallDBArgs(),
				TimeoutMS: 2 * int(c.env.timeouts.Ready.Milliseconds())}},
			writeOp(profile.DatabaseInstalled, cluster.File{Data: []byte("made by Berth\n"), Mode: 0o644}),
		)
		if err != nil {
			return err
		}
	}
	if err := c.doAll(ctx, c.service(profile.MariaDB, "start")); err != nil {
		return err
	}
	return c.sql(ctx, c.stack.Database().CreateSQL())
}

// checkNoDatabase refuses to make the server over a database that may be in use: if
// only the file DatabaseInstalled was lost, every instance of the host would lose
// its accounting.
func (c databaseServer) checkNoDatabase(ctx context.Context, running bool) error {
	others, err := c.file().others(ctx)
	if err != nil {
		return err
	}
	const lost = "host %s: %s is missing, but %s; if the database in %s is intact, create that file again"
	for _, o := range others {
		if o.Complete {
			return fmt.Errorf(lost, c.host.Name(), profile.DatabaseInstalled, o.Unit.Effective.Key.String()+" has its accounting in it",
				profile.DatabaseData)
		}
	}
	if running {
		return fmt.Errorf(lost, c.host.Name(), profile.DatabaseInstalled, "the server runs", profile.DatabaseData)
	}
	return nil
}

// errNoDatabase: the database server has no database of the cluster, or no tables of it.
var errNoDatabase = errors.New("the database of the cluster is gone")

// recordedJob returns the highest id of a job in the accounting database; 0: it has none.
func (c databaseServer) recordedJob(ctx context.Context) (int, error) {
	op := sqlOp(c.stack.Database().LastJobSQL())
	res, err := c.do(ctx, op)
	if err != nil {
		return 0, err
	}
	if res[0].Exit != 0 {
		err := c.exitError(op, res[0])
		if text := string(res[0].Stderr); strings.Contains(text, "ERROR 1049") || strings.Contains(text, "ERROR 1146") {
			err = fmt.Errorf("host %s: %w: %w", c.host.Name(), errNoDatabase, err)
		}
		return 0, err
	}
	text := strings.TrimSpace(string(res[0].Data))
	id, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("host %s: the highest id of a job in the database %s is %q", c.host.Name(), c.stack.Database().Name(), text)
	}
	return id, nil
}
