package runtimes

import (
	"io/fs"
	"regexp"
)

// Profile is what berth-host allows on a host on behalf of one runtime. It is
// compiled into berth-host: neither Git nor a request can widen it.
type Profile struct {
	Name string
	// Paths are the absolute paths a request may touch. "*" stands for one
	// name of letters, digits, dot, dash and underscore (never "..", never
	// empty); a trailing "/**" allows everything below.
	Paths []string
	// StatPaths are further paths, in the same form, that Stat may look at and
	// nothing may touch, such as device files.
	StatPaths []string
	// Programs are what Run may run, by name.
	Programs map[string]Program
	// Services are what Service may start, by name. A spec's words come from
	// the profile and from params it has checked, never from elsewhere.
	Services map[string]func(unit string, params map[string]string) (ServiceSpec, error)
	// CheckMake, if set, refuses what the runtime never makes at a path of Paths.
	// It is asked before every Write, MakeSecret, MakeDir and MakeLink.
	CheckMake func(Making) error
	// EarlierPaths, if set, names what Berth made on a host before the helper
	// kept a record of paths, as the runtime's own records on the host tell it.
	// It reads below root and may name paths that do not exist.
	EarlierPaths func(root fs.FS) []EarlierPath
	// MinUID and MaxUID bound the accounts User may make or remove, and those
	// programs may run as.
	MinUID, MaxUID int
}

// EarlierPath is a path that Berth made; Own: with all below it.
type EarlierPath struct {
	Path string
	Own  bool
}

// Program is one program of a profile.
type Program struct {
	Path string // absolute
	// Env are the names a request may set, with the values each may have. A
	// pattern has to match all of a value.
	Env map[string]*regexp.Regexp
	// AsPerson: it runs as the person Run.As names, never as berth-host.
	AsPerson bool
	// Check, if set, refuses argument lists the runtime never sends.
	Check func(args []string) error
	// CheckStdin, if set, refuses input the runtime never sends. A program that
	// has none takes no input, unless it runs as a person.
	CheckStdin func(stdin []byte) error
	// Reads, if set, says which argument lists have no effect. Those need no
	// epoch and leave no line in the ledger; all others do.
	Reads func(args []string) bool
}

// AdminGroups are the groups whose members reach all of a host. No account that
// is made, or that a program runs as, may be in one.
func AdminGroups() []string { return []string{"root", "sudo", "wheel", "adm", "docker"} }

// Making is what a request would make at a path.
type Making struct {
	Kind         string // file, secret, dir or link
	Path         string
	Data         []byte // of a file
	Mode         uint32 // of all but a link
	Owner, Group string // empty: root
}

// ServiceSpec is one daemon, ready to start. The daemon puts itself into the
// background and writes PIDFile if Forks is set; else berth-host starts it in
// a session of its own and writes PIDFile.
type ServiceSpec struct {
	Path    string
	Args    []string
	Env     []string // NAME=value
	User    string   // account it starts as; empty: root
	PIDFile string
	Forks   bool
	LogFile string // its own log; the tail explains a failed start
	// RunDirs are made before a start, as /run is empty after a boot.
	RunDirs []MakeDir
	// Links are made before a start.
	Links []MakeLink
	// Files are further files the daemon makes: they must not exist before its
	// first start.
	Files []string
	// DistributionUnit is the distribution's own unit of the same program, such
	// as munge, which must neither run nor be enabled where this service starts.
	DistributionUnit string
}
