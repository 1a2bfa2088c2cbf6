package slurm

import "berth/reconciler/plan"

// The kinds of drift.
const (
	driftConfiguration plan.DriftKind = "configuration" // A file, a directory or the configuration in memory differs, or a change is unfinished.
	driftVersion       plan.DriftKind = "version"       // A host has another version of Slurm than declared.
	driftUnit          plan.DriftKind = "unit"          // A unit file of systemd was changed, or is of another version of berth-host.
	driftDisk          plan.DriftKind = "disk"          // A disk of the control host is full.
	driftDatabase      plan.DriftKind = "database"      // The accounting database does not accept writes.
	driftMungeKey      plan.DriftKind = "munge.key"     // The MUNGE key of the control host is missing, or has another content, mode or owner.
	driftReservations  plan.DriftKind = "reservations"  // A reservation differs from the declared one.
	driftAccounting    plan.DriftKind = "accounting"    // Associations or limits differ from the declared ones.
	driftUsers         plan.DriftKind = "users"         // Accounts of users on a host differ from the declared users.
	driftAccess        plan.DriftKind = "access"        // A user or a partition is closed while a change removes it.
	driftBackup        plan.DriftKind = "backup"        // A backup of the control host is due.
)
