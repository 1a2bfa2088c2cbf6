package slurm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth/reconciler/plan"
	"berth/runtimes/slurm/cluster"
)

// The kinds of drift.
const (
	driftConfiguration plan.DriftKind = "configuration" // A file or the configuration in memory differs, or a change is unfinished.
	driftVersion       plan.DriftKind = "version"       // A host has another version of Slurm than declared.
	driftUnit          plan.DriftKind = "unit"          // A unit file of systemd was changed, or is of another version of berth-host.
	driftDisk          plan.DriftKind = "disk"          // A disk of the control host is full.
	driftDatabase      plan.DriftKind = "database"      // The accounting database does not accept writes.
	driftMungeKey      plan.DriftKind = "munge.key"     // The MUNGE key is missing, or has another content, mode or owner.
	driftReservations  plan.DriftKind = "reservations"  // A reservation differs from the declared one.
	driftAccounting    plan.DriftKind = "accounting"    // Associations or limits differ from the declared ones.
	driftUsers         plan.DriftKind = "users"         // Accounts of users on a host differ from the declared users.
	driftAccess        plan.DriftKind = "access"        // A user or a partition is closed while a change removes it.
	driftBackup        plan.DriftKind = "backup"        // A backup of the control host is due.
)

// drifts collects the drift of a unit.
type drifts struct {
	control string // the member with the control plane
	all     []plan.Drift
}

// add adds drift of the control plane.
func (d *drifts) add(what plan.DriftKind, details ...string) {
	for _, detail := range details {
		if detail != "" {
			d.all = append(d.all, plan.Drift{Member: d.control, What: what, Detail: detail})
		}
	}
}

// drift compares the unit with its record: files, memory of the daemons, users, and what is due.
func (v *observation) drift() []plan.Drift {
	rec := &v.ctl.rec
	if !rec.Complete || rec.Deleting {
		return nil
	}
	control, _ := rec.Unit.Control()
	d := &drifts{control: control.Name}
	if v.unrendered != nil {
		d.add(driftConfiguration, v.unrendered.Error())
		return d.all
	}
	v.addHostDrift(d)
	v.addUnfinished(d)
	for _, of := range v.usersDrift() {
		d.add(of.What, of.Detail)
	}
	v.addDue(d)
	d.add(driftVersion, v.wrong)
	for _, m := range rec.Joined {
		if wrong := v.workers[m.Name].wrong; wrong != "" {
			d.all = append(d.all, plan.Drift{Member: m.Name, What: driftVersion, Detail: wrong})
		}
	}
	return append(d.all, v.workerDrift()...)
}

// addHostDrift adds changes by people, and faults of disks and of the database.
func (v *observation) addHostDrift(d *drifts) {
	for _, path := range slices.Sorted(maps.Keys(v.modified)) {
		d.add(driftConfiguration, v.modified[path])
	}
	for _, path := range slices.Sorted(maps.Keys(v.directories)) {
		d.add(driftConfiguration, v.directories[path])
	}
	d.add(driftDisk, v.disks...)
	d.add(driftDatabase, v.unwritable)
	d.add(driftMungeKey, v.keyDrift())
	if v.mismatch {
		d.add(driftConfiguration, "slurmctld runs a configuration other than its file")
	}
	d.add(driftConfiguration, v.byHand...)
	d.add(driftReservations, v.reservations...)
}

// addUnfinished adds changes that began and have not ended.
func (v *observation) addUnfinished(d *drifts) {
	rec := &v.ctl.rec
	switch {
	case rec.Owed != (cluster.Steps{}):
		d.add(driftConfiguration, "unfinished change: "+rec.Owed.String())
	case rec.Writing != nil:
		d.add(driftConfiguration, "unfinished change: its files may be written in part")
	}
	if changes := v.change.Changes; len(changes) > 0 {
		d.add(driftConfiguration, "unfinished change: not written yet: "+namesOf(changes))
	}
	if len(rec.undeclaredUsers()) > 0 {
		d.add(driftUsers, "users that are no longer declared may still have accounts")
	}
}

// addDue adds upkeep that is due: units of systemd, a backup, and the removal of users and partitions, which a configure finishes, or
// undoes if they are wanted again.
func (v *observation) addDue(d *drifts) {
	rec := &v.ctl.rec
	for i, name := range controlServices() {
		if st := v.services[i]; st.Running && st.Outdated {
			d.add(driftUnit, unitDetail(name))
		}
	}
	if set, err := cluster.Parse(rec.Unit.Effective.Config); err == nil {
		if due := rec.backupDue(set, v.ctl.env.now()); !due.IsZero() {
			detail := "due since " + due.Format(time.RFC3339) + "; the last one is of " + rec.BackedUp.Format(time.RFC3339)
			if rec.BackupFault != nil {
				detail += "; " + rec.BackupFault.String()
			}
			d.add(driftBackup, detail)
		}
	}
	for _, target := range slices.Sorted(maps.Keys(rec.Closing)) {
		if target != v.ctl.clusterTarget() && !strings.HasPrefix(target, nodeTarget("")) {
			d.add(driftAccess, target+" is closed")
		}
	}
}

// namesOf lists what changes, the first five of it.
func namesOf(changes []cluster.Change) string {
	var names []string
	for i, ch := range changes {
		if i == 5 {
			names = append(names, fmt.Sprintf("%d more", len(changes)-i))
			break
		}
		names = append(names, ch.What)
	}
	return strings.Join(names, ", ")
}

func (v *observation) workerDrift() []plan.Drift {
	rec := &v.ctl.rec
	want, err := rec.managedUsers()
	if err != nil {
		return nil // shown as a file that cannot be rendered
	}
	var out []plan.Drift
	for _, m := range rec.Joined {
		w := v.workers[m.Name]
		if w.err != nil || w.record.Cluster != rec.Cluster {
			continue
		}
		if !slices.Equal(w.record.Users, want) {
			out = append(out, plan.Drift{Member: m.Name, What: driftUsers,
				Detail: "accounts on " + m.Node + " differ from the declared users"})
		}
		for _, name := range w.outdated {
			out = append(out, plan.Drift{Member: m.Name, What: driftUnit, Detail: unitDetail(name)})
		}
	}
	return out
}

// usersDrift compares accounting and accounts with the declared users. slurmctld has what
// slurmdbd has.
func (v *observation) usersDrift() []plan.Drift {
	var out []plan.Drift
	for _, ch := range v.accounting {
		out = append(out, plan.Drift{What: driftAccounting, Detail: ch.String()})
	}
	if len(out) == 0 && v.people != "" {
		out = append(out, plan.Drift{What: driftUsers, Detail: v.people})
	}
	return out
}

func unitDetail(service string) string {
	return "the unit file of " + service + " was changed or is of another version of berth-host; the new one counts at the next start"
}
