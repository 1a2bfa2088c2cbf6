package slurm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/runtimes"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/profile"
)

// backups keeps copies of the accounting database and of slurmctld's state on the control
// host, below profile.BackupDir. A database is restored as a trial before its copy
// counts; of a state, the list of its files is read.
type backups struct {
	*control
	daemons stackDaemons
}

const (
	// backupTimeout bounds each program of a backup.
	backupTimeout = 20 * time.Minute
	// backupPause is the shortest time between two backups, and after a creation.
	backupPause = 12 * time.Hour
	// backupRetry is the time between two attempts of a backup that fails: it reads the whole
	// database, and no change of the cluster is made meanwhile.
	backupRetry = 30 * time.Minute
)

func (f *backupFault) String() string {
	return fmt.Sprintf("the backup of %s failed, and the next attempt is after %s: %s", f.At.Format(time.RFC3339),
		f.At.Add(backupRetry).Format(time.RFC3339), f.Error)
}

// backupDue returns the time since which a backup is due: the last time that the clock
// reached the declared hour. It is zero if none is due.
func (r *record) backupDue(set cluster.Config, now time.Time) time.Time {
	now = now.UTC()
	due := time.Date(now.Year(), now.Month(), now.Day(), set.Backup.Hour, 0, 0, 0, time.UTC)
	if now.Before(due) {
		due = due.AddDate(0, 0, -1)
	}
	if set.Backup.Keep == 0 || !r.BackedUp.Before(due) || now.Sub(r.BackedUp) < backupPause {
		return time.Time{}
	}
	return due
}

// makeDue makes a backup if one is due, and removes the oldest ones.
func (c backups) makeDue(ctx context.Context) error {
	set, err := cluster.Parse(c.rec.Unit.Effective.Config)
	if err != nil {
		return err
	}
	now := c.env.now().UTC().Truncate(time.Second)
	if c.rec.backupDue(set, now).IsZero() {
		return nil
	}
	if f := c.rec.BackupFault; f != nil && now.Before(f.At.Add(backupRetry)) {
		return errors.New(f.String())
	}
	if err := c.prune(ctx, set.Backup.Keep); err != nil { // also removes the files of an interrupted attempt
		return err
	}
	name := now.Format(profile.BackupName)
	if err := c.make(ctx, name); err != nil {
		left := []runtimes.Op{removeOp(c.stack.Backup(name).DatabaseFile()), removeOp(c.stack.Backup(name).StateFile())}
		_ = c.doAll(context.WithoutCancel(ctx), left...) // the error of the backup counts
		if ctx.Err() != nil || isContactLost(err) {
			return fmt.Errorf("backup: %w", err)
		}
		c.rec.BackupFault = &backupFault{c.env.now().UTC().Truncate(time.Second), err.Error()}
		return cmp.Or(c.save(ctx), errors.New(c.rec.BackupFault.String()))
	}
	c.rec.BackedUp, c.rec.BackupFault = now, nil
	if err := c.save(ctx); err != nil {
		return err
	}
	c.log.Info("backup made and restored as a trial", "host", c.host.Name(), "file", c.stack.Backup(name).DatabaseFile())
	return c.prune(ctx, set.Backup.Keep)
}

// make writes a backup and tries it.
func (c backups) make(ctx context.Context, name string) error {
	before, err := c.count(ctx, false)
	if err != nil {
		return err
	}
	if err := c.doAll(ctx, ownDirOp(profile.BackupDir, 0o700, ""), ownDirOp(c.stack.Backups(), 0o700, "")); err != nil {
		return err
	}
	if _, err := c.runChecked(ctx, backupOp("mariadb-dump", c.stack.Backup(name).DumpArgs())); err != nil {
		return err
	}
	archive := backupOp("tar", c.stack.Backup(name).ArchiveArgs())
	res, err := c.do(ctx, archive, backupOp("tar", c.stack.Backup(name).ListArchiveArgs()))
	switch {
	case err != nil:
		return err
	case res[0].Exit > 1:
		return c.exitError(archive, res[0])
	case res[1].Exit != 0 || !slices.Contains(strings.Fields(string(res[1].Data)), "state/clustername"):
		return fmt.Errorf("host %s: the archive of the state has no file state/clustername: %s", c.host.Name(), res[1].Stderr)
	}
	return c.try(ctx, name, before)
}

// try restores the dump into a database of its own and compares it with the one that runs,
// which had counts before the dump.
func (c backups) try(ctx context.Context, name string, before counts) error {
	if err := (databaseServer{c.control}).sql(ctx, c.stack.Database().CreateRestoreSQL()); err != nil {
		return err
	}
	restore := backupOp("mariadb", c.stack.Database().RestoreArgs())
	restore.Run.StdinFile = c.stack.Backup(name).DatabaseFile()
	_, err := c.runChecked(ctx, restore)
	var restored, after counts
	if err == nil {
		restored, err = c.count(ctx, true)
	}
	if err == nil {
		after, err = c.count(ctx, false)
	}
	if dropped := (databaseServer{c.control}).sql(context.WithoutCancel(ctx), c.stack.Database().DropRestoreSQL()); err == nil {
		err = dropped
	}
	if err != nil {
		return err
	}
	if restored.tables < before.tables || restored.jobs < before.jobs || restored.jobs > after.jobs {
		return fmt.Errorf("host %s: the restored dump has %d tables and %d jobs, and the database has %d and %d to %d",
			c.host.Name(), restored.tables, restored.jobs, before.tables, before.jobs, after.jobs)
	}
	return nil
}

// counts are the numbers of tables and jobs in a database.
type counts struct{ tables, jobs int }

func (c backups) count(ctx context.Context, restored bool) (counts, error) {
	op := backupOp("mariadb", profile.SQLArgs())
	op.Run.Stdin = []byte(c.stack.Database().CountSQL(restored))
	res, err := c.runChecked(ctx, op)
	if err != nil {
		return counts{}, err
	}
	var n []int
	for line := range strings.Lines(string(res.Data)) {
		i, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			return counts{}, fmt.Errorf("host %s: want a number from the database, got %q", c.host.Name(), line)
		}
		n = append(n, i)
	}
	if len(n) != 2 {
		return counts{}, fmt.Errorf("host %s: want two numbers from the database, got %q", c.host.Name(), res.Data)
	}
	return counts{n[0], n[1]}, nil
}

func backupOp(program string, args []string) runtimes.Op {
	return runtimes.Op{Run: &runtimes.Run{Program: program, Args: args, TimeoutMS: int(backupTimeout.Milliseconds()), AllowExit: true}}
}

// prune removes the oldest backups, and files that are newer than the last recorded backup, as
// their attempt did not finish. Their names are in the order of their times. It leaves other
// files alone.
func (c backups) prune(ctx context.Context, keep int) error {
	res, err := c.do(ctx, runtimes.Op{List: &runtimes.List{Path: c.stack.Backups()}})
	if err != nil {
		return err
	}
	var names []string
	var ops []runtimes.Op
	last := c.rec.BackedUp.UTC().Format(profile.BackupName)
	for _, f := range res[0].Names {
		name, _, _ := strings.Cut(f, ".")
		switch _, err := time.Parse(profile.BackupName, name); {
		case err != nil:
		case name > last:
			ops = append(ops, removeOp(c.stack.Backup(name).DatabaseFile()), removeOp(c.stack.Backup(name).StateFile()))
		default:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for _, name := range names[:max(len(names)-keep, 0)] {
		ops = append(ops, removeOp(c.stack.Backup(name).DatabaseFile()), removeOp(c.stack.Backup(name).StateFile()))
	}
	return c.doAll(ctx, ops...)
}
