package runtimes

import (
	"io/fs"
	"regexp"
)

// Profile lists what berth-host allows on a host for a runtime. It is compiled into
// berth-host, so neither Git nor a request can extend it.
type Profile struct {
	Name string
	// Paths are absolute paths that a request may use. "*" matches one name of
	// letters, digits, dot, dash and underscore (never ".." or empty); a trailing
	// "/**" matches everything below.
	Paths []string
	// StatPaths are further paths for Stat only, such as device files.
	StatPaths []string
	// HashPaths are further paths for Stat, which returns the digest of plain files there.
	HashPaths []string
	// DiskPaths are directories that hold the state of units. ReadFacts measures their file systems, beside those of / and of the ledger.
	DiskPaths []string
	// SecretPaths are the Paths that hold keys. The ledger has an entry for each Read of one.
	SecretPaths []string
	// Programs are the programs for Run, by name.
	Programs map[string]Program
	// Services are the services for Service, by name. A spec contains only words of
	// the profile and checked parameters.
	Services map[string]func(unit string, params map[string]string) (ServiceSpec, error)
	// CheckMake, if set, refuses content, mode or owner that the runtime never makes.
	// It is called before every Write, MakeSecret, MakeDir and MakeLink.
	CheckMake func(Making) error
	// DerivePaths, if set, derives the paths that Berth made from the runtime's records below root, for a helper whose own record
	// of paths is lost or damaged. It may return paths that do not exist.
	DerivePaths func(root fs.FS) []DerivedPath
	// UserDirs, if set, has a directory for each unit, with a directory for each user of it
	// (UserDir). It is one of Paths.
	UserDirs string
	// IsUID, if set, reports whether an account for User and for Run.As may have a uid.
	IsUID func(uid int) bool
}

// DerivedPath is a path that Berth made. Own: with all its content.
type DerivedPath struct {
	Path string
	Own  bool
}

// Program is a program of a profile.
type Program struct {
	Path string // absolute
	// Env maps the variables that a request may set to patterns for the whole value.
	Env map[string]*regexp.Regexp
	// Config is the variable of Env that names the program's configuration: while that file is missing, the
	// program ends at once with 1: some wait a minute for theirs. Empty: it has none.
	Config string
	// AsPerson: it runs as Run.As, never as root.
	AsPerson bool
	// Check, if set, refuses arguments that the runtime never sends.
	Check func(args []string) error
	// CheckStdin, if set, refuses input that the runtime never sends. A program
	// without it gets no input, unless it runs as a person.
	CheckStdin func(stdin []byte) error
	// StdinFiles, if set, matches the whole path of a file that may be the input. Only root
	// may be able to write it.
	StdinFiles *regexp.Regexp
	// Scripts, if set, matches the whole path of Run.Script, DIR/NAME/FILE: berth-host makes DIR, for all such files,
	// and NAME for this one. The program runs as a person.
	Scripts *regexp.Regexp
	// Export maps the variables of Run.Export to patterns for the whole value.
	Export map[string]*regexp.Regexp
	// Reads, if set, reports whether arguments have no effect. Such a run needs no
	// epoch and no entry in the ledger.
	Reads func(args []string) bool
	// ReadsStdin: Reads holds for calls with input as well.
	ReadsStdin bool
}

// AdminGroups returns the groups whose members control the host. No account that is
// made, or that a program runs as, may be in one.
func AdminGroups() []string { return []string{"root", "sudo", "wheel", "adm", "docker"} }

// Making describes a path that a request would make.
type Making struct {
	Kind         string // file, secret, dir or link
	Path         string
	Data         []byte // of a file
	Mode         uint32 // of all but a link
	Owner, Group string // empty: root
}

// ServiceSpec describes a daemon. With Forks the daemon puts itself into the background
// and writes PIDFile; otherwise berth-host starts it in a new session and writes
// PIDFile.
type ServiceSpec struct {
	Path    string
	Args    []string
	Env     []string // NAME=value
	User    string   // account; empty: root
	PIDFile string
	Forks   bool
	LogFile string // its own log, which explains why it ended
	Started string // is part of the line in the log that says that it has started; lines before are of an earlier process
	// RunDirs are made before each start, as /run is empty after a boot.
	RunDirs []MakeDir
	// Links are made before each start.
	Links []MakeLink
	// Files are further files that the daemon makes. They must not exist before its
	// first start.
	Files []string
	// Devices are device files that have to exist when it starts.
	Devices []string
	// DistributionUnit is the distribution's own unit of the same program, such as
	// munge. It must neither run nor be enabled.
	DistributionUnit string
	Unit             UnitSpec
}

// UnitSpec has the particular settings of a service's unit, where systemd is the init
// system.
type UnitSpec struct {
	// After are services of the host that start before it, where they are enabled.
	After []ServiceName
	// Notify: the daemon reports to systemd when it serves (sd_notify(3)).
	Notify bool
	// Ready is a command of bash, run as User, that ends when the daemon serves, or after
	// a minute.
	Ready string
	// RunsJobs: its children are jobs. They have control groups and no limits of the
	// unit, and go on when the daemon ends, which is then started again in any case.
	RunsJobs bool
	// NeverKill: a stop waits until the daemon has ended, as a kill may damage its data.
	NeverKill bool
	// Scopes are scopes that the daemon makes and leaves behind.
	Scopes []string
}

// ServiceName names a service of a profile.
type ServiceName struct{ Name, Unit string }
