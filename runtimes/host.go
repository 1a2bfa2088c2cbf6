package runtimes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"berth/reconciler/plan"
)

// Errors a Host returns; test with errors.Is.
var (
	// ErrUnreachable: the host could not be asked; nothing is known.
	ErrUnreachable = errors.New("host unreachable")
	// ErrUncertain: contact was lost in the middle; the effect may stand.
	ErrUncertain = errors.New("outcome uncertain")
	// ErrWaiting: nothing is wrong, but jobs or a drain are in the way; apply
	// the action again later.
	ErrWaiting = errors.New("waiting")
	// ErrStaleEpoch: the host has seen a later leader, or another one of the same
	// epoch, and refused.
	ErrStaleEpoch = errors.New("refused: the host obeys another leader")
	// ErrForeign: something that Berth did not make is in the way. Nothing was
	// written; the message says what it is and which command helps.
	ErrForeign = errors.New("not made by Berth")
)

// Hosts reaches hosts. Connections are kept and reused.
type Hosts interface {
	// Host is the host a member stands on. It does not connect yet.
	Host(m plan.Member) Host
	Close() error
}

// Host performs operations on one host through berth-host. It is safe for
// concurrent use. Do sends ops as one batch; they run in order and stop at the
// first that fails. The results are those of the ops that ran; the error, if
// any, is an *OpError for the op that failed, or wraps ErrUnreachable,
// ErrUncertain or ErrStaleEpoch. ctx bounds the whole batch.
type Host interface {
	Name() string
	Do(ctx context.Context, stamp Stamp, ops ...Op) ([]Result, error)
}

// OpError is an operation that failed on a host.
type OpError struct {
	Host    string
	Op      string // what was done, such as `run scontrol reconfigure`; no contents
	Message string // what it printed or why it was refused, bounded
	Code    string // exit, refused, foreign, timeout, notfound, io, invalid
	Exit    int    // exit status of a program, if Code is exit
}

func (e *OpError) Error() string {
	if e.Code == "exit" {
		return fmt.Sprintf("host %s: %s: exit status %d: %s", e.Host, e.Op, e.Exit, e.Message)
	}
	return fmt.Sprintf("host %s: %s: %s", e.Host, e.Op, e.Message)
}

// Is makes an error with code foreign an ErrForeign.
func (e *OpError) Is(target error) bool { return target == ErrForeign && e.Code == "foreign" }

// Op is one typed operation; exactly one field is set. What is allowed —
// paths, programs, services, accounts — is compiled into berth-host as its
// runtime profile; everything else is refused.
type Op struct {
	Write   *WriteFile  `json:"write,omitempty"`
	Read    *ReadFile   `json:"read,omitempty"`
	Remove  *Remove     `json:"remove,omitempty"`
	Dir     *MakeDir    `json:"dir,omitempty"`
	Link    *MakeLink   `json:"link,omitempty"`
	Stat    *Stat       `json:"stat,omitempty"`
	List    *List       `json:"list,omitempty"`
	Secret  *MakeSecret `json:"secret,omitempty"`
	Service *Service    `json:"service,omitempty"`
	Run     *Run        `json:"run,omitempty"`
	User    *User       `json:"user,omitempty"`
	WaitTCP *WaitTCP    `json:"wait_tcp,omitempty"`
	Ledger  *Ledger     `json:"ledger,omitempty"`
	Info    *Info       `json:"info,omitempty"`
	// Preflight has no result: it fails with code foreign, or all is well.
	Preflight *Preflight `json:"preflight,omitempty"`
}

// Result is what one Op gave; which fields are set depends on the Op.
type Result struct {
	Data    []byte         `json:"data,omitempty"`    // Read; Run: stdout
	Stderr  []byte         `json:"stderr,omitempty"`  // Run
	Exit    int            `json:"exit,omitempty"`    // Run with AllowExit
	Changed bool           `json:"changed,omitempty"` // Write, Remove, Dir, Link, Secret, User, Service: whether it did something
	Missing bool           `json:"missing,omitempty"` // Read: no such file
	Stats   []FileStat     `json:"stats,omitempty"`
	Names   []string       `json:"names,omitempty"` // List
	Service *ServiceStatus `json:"service,omitempty"`
	Ledger  []LedgerEntry  `json:"ledger,omitempty"`
	Info    *HostInfo      `json:"info,omitempty"`
}

// WriteFile writes a file atomically with fsync of file and directory. Its
// content never reaches a log or the ledger. Equal content, mode and owner: no
// change. A file that Berth did not make is refused with code foreign.
type WriteFile struct {
	Path  string `json:"path"`
	Data  []byte `json:"data"`
	Mode  uint32 `json:"mode"`
	Owner string `json:"owner,omitempty"` // user name; empty: root
	Group string `json:"group,omitempty"`
}

// ReadFile reads at most Max bytes (0: 1 MiB) of a file.
type ReadFile struct {
	Path string `json:"path"`
	Max  int    `json:"max,omitempty"`
}

// Remove removes a file that Berth made, or a directory with what is in it if
// Tree is set: such a directory was made with Own. No such path is no error.
// Links are removed, never followed. IfEmpty removes a directory only if Berth
// made it and nothing is in it; else the directory stays, which is no error.
type Remove struct {
	Path    string `json:"path"`
	Tree    bool   `json:"tree,omitempty"`
	IfEmpty bool   `json:"if_empty,omitempty"`
}

// MakeDir makes a directory (parents must be there) or corrects mode and owner
// of one that Berth made. With Own the directory is Berth's with all in it, and
// one that Berth did not make is refused; else such a one is used as it is.
type MakeDir struct {
	Path  string `json:"path"`
	Mode  uint32 `json:"mode"`
	Owner string `json:"owner,omitempty"`
	Group string `json:"group,omitempty"`
	Own   bool   `json:"own,omitempty"`
}

// MakeLink makes the symbolic link Path that says Target. A path that Berth did
// not make is refused with code foreign.
type MakeLink struct {
	Path   string `json:"path"`
	Target string `json:"target"`
}

// Stat looks at paths without following a final link.
type Stat struct {
	Paths []string `json:"paths"`
}

// List lists the names in a directory, sorted. No such directory has none.
type List struct {
	Path string `json:"path"`
}

// FileStat is one answer of Stat.
type FileStat struct {
	Path   string `json:"path"`
	Exists bool   `json:"exists"`
	Type   string `json:"type,omitempty"` // file, dir, link, char, block, other
	Mode   uint32 `json:"mode,omitempty"`
	Size   int64  `json:"size,omitempty"`
	SHA256 string `json:"sha256,omitempty"` // of plain files up to 1 MiB
	Made   bool   `json:"made,omitempty"`   // Berth made it
}

// Preflight looks for what is in the way of making Paths and starting Services,
// and changes nothing. It fails with code foreign, and names everything it found
// with the command that helps, where a path exists that Berth did not make, or
// where the distribution's own daemon of the same program runs or is enabled.
type Preflight struct {
	Paths    []string  `json:"paths,omitempty"`
	Services []Service `json:"services,omitempty"` // Verb and Params are not used
}

// MakeSecret makes a file of random bytes if there is none, and never changes
// one that is there. One that Berth did not make is refused with code foreign.
type MakeSecret struct {
	Path  string `json:"path"`
	Bytes int    `json:"bytes"`
	Hex   bool   `json:"hex,omitempty"` // printable: two characters a byte
	Mode  uint32 `json:"mode"`
	Owner string `json:"owner,omitempty"`
	Group string `json:"group,omitempty"`
}

// Service starts, stops or looks at a service of the profile. Params fill the
// profile's template and are checked by it.
type Service struct {
	Name   string            `json:"name"` // in the profile
	Unit   string            `json:"unit"` // which one of it, such as a cluster's name; may be empty
	Params map[string]string `json:"params,omitempty"`
	// Verb is start, stop, restart, kill, state, or clear: stop, and end whatever
	// the daemon started and left running.
	Verb string `json:"verb"`
	// TimeoutMS bounds a start or stop; 0: 10 s.
	TimeoutMS int `json:"timeout_ms,omitempty"`
}

// ServiceStatus is how a service is. Enabled: it comes back after a reboot.
type ServiceStatus struct {
	Running bool      `json:"running"`
	PID     int       `json:"pid,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Detail  string    `json:"detail,omitempty"` // last lines of its log when it would not start
}

// Run runs a program of the profile with arguments, never a shell.
type Run struct {
	Program   string            `json:"program"` // its name in the profile
	Args      []string          `json:"args,omitempty"`
	Env       map[string]string `json:"env,omitempty"` // names the profile allows
	Stdin     []byte            `json:"stdin,omitempty"`
	TimeoutMS int               `json:"timeout_ms,omitempty"` // 0: 10 s
	AllowExit bool              `json:"allow_exit,omitempty"` // a non-zero exit status is a result, not an error
	// As is whom it runs for, with their own primary group and no other. Only
	// programs whose profile says so take one, and those need one.
	As *Person `json:"as,omitempty"`
}

// Person is an account that a host has, of its own files or of a directory.
type Person struct {
	Name string `json:"name"`
	UID  int    `json:"uid"`
}

// User makes sure that an account is there, with this name, uid and a group of
// the same name and gid; or that it is gone, if berth-host made it.
// An account that somebody else made, or that is in a group of administrators,
// is an error. What a person still runs is ended before the account goes.
type User struct {
	Name   string `json:"name"`
	UID    int    `json:"uid"`
	Absent bool   `json:"absent,omitempty"`
}

// WaitTCP waits until a port of this host accepts connections.
type WaitTCP struct {
	Address   string `json:"address"` // host:port
	TimeoutMS int    `json:"timeout_ms"`
}

// Ledger writes or reads the host's ledger of operations.
type Ledger struct {
	Begin bool   `json:"begin,omitempty"` // intent of the stamp's action
	End   string `json:"end,omitempty"`   // outcome of the stamp's action: done, failed
	Find  string `json:"find,omitempty"`  // entries of this action id
}

// LedgerEntry is one line of the ledger. It holds no contents.
type LedgerEntry struct {
	Seq   uint64    `json:"seq"`
	At    time.Time `json:"at"`
	Stamp Stamp     `json:"stamp"`
	Op    string    `json:"op"` // begin, end:done, end:failed, or a summary of an effect
}

// Info asks about the host and its helper.
type Info struct{}

// HostInfo is the answer to Info.
type HostInfo struct {
	Hostname string `json:"hostname"`
	Version  string `json:"version"`
	Digest   string `json:"digest"` // sha256 of the helper's binary
	BootID   string `json:"boot_id"`
	Epoch    uint64 `json:"epoch"` // highest seen
	Init     string `json:"init"`  // systemd or none
	UID      int    `json:"uid"`
}
