//go:build long

package slurm_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/runtimes"
	"berth/runtimes/slurm"
	"berth/runtimes/slurm/cluster"
	"berth/runtimes/slurm/slurmtest"
)

func TestLongNoBackupsAreMadeIfNoneAreKept(t *testing.T) {
	t.Parallel()
	c, u := newCompany(t, strings.Replace(onePartition, "{", `{"backup":{"keep":0},`, 1), 0)
	c.rt = slurm.New(slurm.Options{Hosts: c.hosts, Now: func() time.Time { return time.Now().AddDate(0, 0, 5) }})
	require.Empty(t, c.plan(t, u, false).Actions)
}

// A backup counts once its dump was restored. The page operate.md restores it by hand.
func TestLongBackupIsRestoredBeforeItCounts(t *testing.T) {
	t.Parallel()
	c, u := newCompanyOn(bareStage(t), t, strings.Replace(onePartition, "{", `{"backup":{"hour":2,"keep":2},`, 1), 0)
	job := c.await(t, u, c.submit(t, u, alice, "true", 0), slurmtest.Completed)
	cluster := cluster.Name(u.Effective.Key)
	sacct := func() string {
		return strings.TrimSpace(c.onControl(t, u, "sacct -a -X -n -P -o State -j "+job.ID))
	}
	eventually(t, "the job in accounting", func() (bool, string) { return sacct() == "COMPLETED", sacct() })
	list := func() []string {
		return strings.Fields(c.onControl(t, u, "ls /var/lib/berth/backups/"+cluster+" 2>/dev/null || true"))
	}
	c.carry(t, u, false)
	require.Empty(t, list(), "none is due so soon after the creation")

	day, later := 0, time.Duration(0)
	c.rt = slurm.New(slurm.Options{Hosts: c.hosts, Now: func() time.Time { return time.Now().AddDate(0, 0, day).Add(later) }})
	for day = 1; day <= 3; day++ {
		p := c.plan(t, u, false)
		require.Len(t, p.Actions, 1)
		require.Contains(t, p.Actions[0].Reason, "backup")
		c.carry(t, u, false)
	}
	files := list()
	require.Len(t, files, 4, "two backups of two files each are kept: %s", files)
	require.Contains(t, c.onControl(t, u, "stat -c '%A %U' /var/lib/berth/backups/"+cluster), "drwx------ root")
	sql := "mariadb --no-defaults --user=root --socket=/run/berth-mariadb/mariadbd.sock "
	require.NotContains(t, c.onControl(t, u, sql+"-e 'show databases'"), "restore")

	// A dump that is cut off does not count, and a later attempt makes a whole one. Until then
	// the rest of the cluster is kept.
	day = 4
	c.onControl(t, u, `mv /usr/bin/mariadb-dump /usr/bin/mariadb-dump.own
printf '#!/bin/sh\nfor a; do case $a in --result-file=*) f=${a#*=};; esac; done\n/usr/bin/mariadb-dump.own "$@" && head -c 20000 $f >$f.cut && mv $f.cut $f\n' >/usr/bin/mariadb-dump
chmod 755 /usr/bin/mariadb-dump`)
	before := string(c.observe(t, u).RuntimeState)
	err := c.apply(t, c.plan(t, u, false))
	require.ErrorIs(t, err, runtimes.ErrWaiting)
	require.ErrorContains(t, err, "the backup of ")
	require.Equal(t, before, string(c.observe(t, u).RuntimeState))
	require.Contains(t, c.observe(t, u).Drift[0].Detail, "the next attempt is after ")
	require.Equal(t, files, list())
	c.onControl(t, u, "mv /usr/bin/mariadb-dump.own /usr/bin/mariadb-dump")
	require.ErrorIs(t, c.apply(t, c.plan(t, u, false)), runtimes.ErrWaiting)
	require.Equal(t, files, list())
	// The files of an attempt whose host was lost are removed, and a file of a person stays.
	c.onControl(t, u, "cd /var/lib/berth/backups/"+cluster+" && touch 20990101T000000Z.sql zz-before-upgrade.sql")
	later = 31 * time.Minute
	c.carry(t, u, false)
	require.Contains(t, list(), "zz-before-upgrade.sql")
	require.NotContains(t, list(), "20990101T000000Z.sql")
	require.Len(t, list(), 5)
	c.onControl(t, u, "rm /var/lib/berth/backups/"+cluster+"/zz-before-upgrade.sql")

	// The accounting is lost, and restored as operate.md says.
	files = list()
	name := strings.TrimSuffix(files[len(files)-1], ".state.tar")
	c.onControl(t, u, sql+"slurm_acct_"+cluster+" -e 'delete from "+cluster+"_job_table'")
	require.Empty(t, sacct())
	c.onControl(t, u, sql+"slurm_acct_"+cluster+" </var/lib/berth/backups/"+cluster+"/"+name+".sql")
	require.Equal(t, "COMPLETED", sacct())

	c.carry(t, u, true)
	require.Empty(t, c.remains(t, u))
}
