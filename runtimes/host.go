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
	// ErrUnreachable: the host did not answer; its state is unknown.
	ErrUnreachable = errors.New("host unreachable")
	// ErrUncertain: contact was lost during the operation, which may have had its
	// effect.
	ErrUncertain = errors.New("outcome uncertain")
	// ErrWaiting: the action waits for jobs, a drain or a person; apply it again later. All
	// that does not depend on it is done.
	ErrWaiting = errors.New("waiting")
	// ErrBusy: another operation on the host had not ended, such as the last one of a leader that was killed. The
	// operation did not begin.
	ErrBusy = errors.New("the host is busy")
	// ErrStaleEpoch: the host refused, as it knows a later leader, or another one of
	// the same epoch.
	ErrStaleEpoch = errors.New("refused: the host has another leader")
	// ErrForeign: a path or daemon that Berth did not make is in the way. Nothing was
	// written; the message names it and the command that helps.
	ErrForeign = errors.New("not made by Berth")
	// ErrNeedsPerson: no wait mends it, a person has to change the configuration of Berth or of
	// the host. Make one with NeedsPerson.
	ErrNeedsPerson = errors.New("needs a person")
)

// NeedsPerson marks an error as ErrNeedsPerson. Its text names the repair by the person.
func NeedsPerson(err error) error { return needsPerson{err} }

type needsPerson struct{ error }

func (e needsPerson) Unwrap() error { return e.error }

func (needsPerson) Is(target error) bool { return target == ErrNeedsPerson }

// HelperError is the error of a host that answers with another program than the berth-host that this daemon needs. It is
// ErrUnreachable, too: no operation can be done.
type HelperError struct{ Message string }

func (e *HelperError) Error() string { return e.Message }

// Is makes it an ErrUnreachable.
func (*HelperError) Is(target error) bool { return target == ErrUnreachable }

// Hosts reaches hosts. It keeps and reuses connections.
type Hosts interface {
	// Host returns the host of a member. It does not connect yet.
	Host(m plan.Member) Host
	Close() error
}

// WithTenant returns a context whose calls to hosts take turns with those of other tenants; "": the platform's.
func WithTenant(ctx context.Context, tenant string) context.Context {
	return context.WithValue(ctx, tenantKey{}, tenant)
}

// TenantOf returns the tenant that calls with a context are for; "": the platform.
func TenantOf(ctx context.Context) string {
	tenant, _ := ctx.Value(tenantKey{}).(string)
	return tenant
}

// tenantKey is the key of the tenant in the context of a call.
type tenantKey struct{}

// Host does operations on a host through berth-host. It is safe for concurrent use.
// Do sends ops as one batch, which runs in order and stops at the first failure. It
// returns the results of the ops that succeeded. The error is an *OpError of the op
// that failed, or wraps ErrUnreachable, ErrUncertain or ErrStaleEpoch. ctx bounds
// the whole batch.
type Host interface {
	Name() string
	Do(ctx context.Context, stamp Stamp, ops ...Op) ([]Result, error)
}

// OpError is the error of an operation on a host.
type OpError struct {
	Host    string
	Op      string // the operation, such as `run scontrol reconfigure`; no contents
	Message string // its output or the reason of the refusal, truncated
	Code    OpCode
	Exit    int // exit status of a program, if Code is CodeExit
}

// OpCode is the cause of the failure of an operation on a host. No OpError has CodeStaleEpoch: it is
// ErrStaleEpoch.
type OpCode string

// The codes.
const (
	CodeExit       OpCode = "exit"        // A program ended with an exit status other than 0.
	CodeOutput     OpCode = "output"      // A program printed more than the limit.
	CodeRefused    OpCode = "refused"     // berth-host does not allow the operation.
	CodeForeign    OpCode = "foreign"     // A path or daemon that Berth did not make is in the way.
	CodeTimeout    OpCode = "timeout"     // The operation did not end within its timeout.
	CodeBusy       OpCode = "busy"        // Another operation of the host had not ended by the timeout: this one did not start.
	CodeNotFound   OpCode = "notfound"    // The host has no such file, program, account or service.
	CodeIO         OpCode = "io"          // The host could not read or write.
	CodeInvalid    OpCode = "invalid"     // The request is not valid.
	CodeStaleEpoch OpCode = "stale-epoch" // Another daemon leads: the host knows a later epoch, or another leader of it.
)

// IsTooLong reports whether a program printed more than a host returns.
func IsTooLong(err error) bool {
	var failed *OpError
	return errors.As(err, &failed) && failed.Code == CodeOutput
}

func (e *OpError) Error() string {
	if e.Code == CodeExit {
		return fmt.Sprintf("host %s: %s: exit status %d: %s", e.Host, e.Op, e.Exit, e.Message)
	}
	return fmt.Sprintf("host %s: %s: %s", e.Host, e.Op, e.Message)
}

// Is matches ErrForeign if the code is foreign, and ErrBusy if it is busy.
func (e *OpError) Is(target error) bool {
	return target == ErrForeign && e.Code == CodeForeign || target == ErrBusy && e.Code == CodeBusy
}

// Op is a typed operation; exactly one field is set. berth-host refuses paths,
// programs, services and accounts that its compiled-in profiles do not allow.
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
	UserDir *UserDir    `json:"user_dir,omitempty"`
	Info    *Info       `json:"info,omitempty"`
	// Preflight has no result; it fails with code foreign.
	Preflight *Preflight  `json:"preflight,omitempty"`
	Ledger    *ReadLedger `json:"ledger,omitempty"`
	Facts     *ReadFacts  `json:"facts,omitempty"`
}

// Result is the result of an Op, which decides the fields that are set.
type Result struct {
	Data    []byte         `json:"data,omitempty"`    // Read; Run: stdout
	Stderr  []byte         `json:"stderr,omitempty"`  // Run
	Exit    int            `json:"exit,omitempty"`    // Run with AllowExit
	Changed bool           `json:"changed,omitempty"` // Write, Remove, Dir, Link, Secret, User, UserDir, Service: whether it had an effect
	Missing bool           `json:"missing,omitempty"` // Read: no such file
	Stats   []FileStat     `json:"stats,omitempty"`
	Names   []string       `json:"names,omitempty"` // List
	Service *ServiceStatus `json:"service,omitempty"`
	Info    *HostInfo      `json:"info,omitempty"`
	Ledger  *LedgerPart    `json:"ledger,omitempty"`
	Facts   *HostFacts     `json:"facts,omitempty"`
}

// WriteFile writes a file atomically with fsync of file and directory, unless it has
// this content, mode and owner already. Neither log nor ledger contains the content.
// A file that Berth did not make is refused with code foreign.
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

// Remove removes a file that Berth made, or with Tree a directory that was made with
// Own. It removes links and never follows them. A missing path is not an error. IfEmpty
// removes a directory only if Berth made it and it is empty; otherwise the directory
// stays, without an error. In a directory with users' directories (UserDir) it removes the
// empty ones first.
type Remove struct {
	Path    string `json:"path"`
	Tree    bool   `json:"tree,omitempty"`
	IfEmpty bool   `json:"if_empty,omitempty"`
}

// MakeDir makes a directory in an existing one, or corrects mode and owner of one that
// Berth made. With Own the directory belongs to Berth with all its content, and one
// that Berth did not make is refused. Without Own such a directory is used unchanged.
type MakeDir struct {
	Path  string `json:"path"`
	Mode  uint32 `json:"mode"`
	Owner string `json:"owner,omitempty"`
	Group string `json:"group,omitempty"`
	Own   bool   `json:"own,omitempty"`
}

// MakeLink makes the symbolic link Path to Target. A path that Berth did not make is
// refused with code foreign.
type MakeLink struct {
	Path   string `json:"path"`
	Target string `json:"target"`
}

// Stat returns the status of paths. It does not follow a final link.
type Stat struct {
	Paths []string `json:"paths"`
}

// List lists the sorted names in a directory; none for a missing one.
type List struct {
	Path string `json:"path"`
}

// FileStat is the status of a path.
type FileStat struct {
	Path   string `json:"path"`
	Exists bool   `json:"exists"`
	Type   string `json:"type,omitempty"` // file, dir, link, char, block, other
	Mode   uint32 `json:"mode,omitempty"`
	UID    uint32 `json:"uid,omitempty"` // of the owner
	Size   int64  `json:"size,omitempty"`
	SHA256 string `json:"sha256,omitempty"` // of plain files up to 16 MiB
	Made   bool   `json:"made,omitempty"`   // Berth made it
	Full   bool   `json:"full,omitempty"`   // a directory whose file system has less than 16 MiB, or no inode, for users
	// ReadOnly: a directory whose file system is mounted read-only, by a person or after an error of its disk.
	ReadOnly bool `json:"read_only,omitempty"`
}

// Preflight checks for conflicts with making Paths and starting Services, and changes
// nothing. It fails with code foreign if a path exists that Berth did not make, or if
// the distribution's own daemon of the same program runs or is enabled. The error
// lists all conflicts with the commands that help.
type Preflight struct {
	Paths    []string  `json:"paths,omitempty"`
	Services []Service `json:"services,omitempty"` // without Verb and Params
}

// MakeSecret makes a file of random bytes, and never changes an existing one. A file
// that Berth did not make is refused with code foreign.
type MakeSecret struct {
	Path  string `json:"path"`
	Bytes int    `json:"bytes"`
	Mode  uint32 `json:"mode"`
	Owner string `json:"owner,omitempty"`
	Group string `json:"group,omitempty"`
}

// Service starts, stops or queries a service of the profile, which checks Params.
type Service struct {
	Name   string            `json:"name"` // in the profile
	Unit   string            `json:"unit"` // instance of the service, such as a cluster's name; may be empty
	Params map[string]string `json:"params,omitempty"`
	// Verb is start, stop, restart, kill, state, or clear: stop, and end the
	// processes that the daemon started.
	Verb string `json:"verb"`
	// TimeoutMS bounds a start or stop; 0: 10 s.
	TimeoutMS int `json:"timeout_ms,omitempty"`
}

// ServiceStatus is the state of a service.
type ServiceStatus struct {
	Running bool      `json:"running"`
	PID     int       `json:"pid,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Detail  string    `json:"detail,omitempty"` // why it does not run, if known
	// Outdated: its unit of systemd is not the one that a start with these Params
	// writes. A start corrects the unit and does not restart the service.
	Outdated bool `json:"outdated,omitempty"`
}

// Run runs a program of the profile with arguments, never a shell.
type Run struct {
	Program   string            `json:"program"` // name in the profile
	Args      []string          `json:"args,omitempty"`
	Env       map[string]string `json:"env,omitempty"` // variables that the profile allows
	Stdin     []byte            `json:"stdin,omitempty"`
	StdinFile string            `json:"stdin_file,omitempty"` // a file that the profile allows as input, instead of Stdin
	// Script is the path of a file that has Stdin as its content, that As alone can read, and that exists while
	// the program runs. It is the last argument: for a program that keeps the name of its script. It is set for
	// exactly the programs with Scripts in the profile.
	Script string `json:"script,omitempty"`
	// Export are variables for what the program starts later, in a file at /proc/self/fd/3: NAME=value, and a NUL character
	// after each. The profile allows each.
	Export    map[string]string `json:"export,omitempty"`
	TimeoutMS int               `json:"timeout_ms,omitempty"` // 0: 10 s
	AllowExit bool              `json:"allow_exit,omitempty"` // a non-zero exit status is not an error
	// As is the user it runs as, with only the primary group. It is set for exactly
	// the programs with AsPerson in the profile.
	As *Person `json:"as,omitempty"`
}

// Person is an account on a host, in its own files or from a directory service.
type Person struct {
	Name string `json:"name"`
	UID  int    `json:"uid"`
}

// User makes an account with this name and uid, and a group of the same name and gid.
// With Absent it ends the user's processes and removes the account if berth-host made
// it. An account of another origin, or in a group of administrators, is an error. Accounts that
// follow one another in a batch are made, or removed, together, and each file is written once.
type User struct {
	Name   string `json:"name"`
	UID    int    `json:"uid"`
	Absent bool   `json:"absent,omitempty"`
}

// UserDir makes the directory NAME-UID of a user in a directory of the profile that was
// made with Own. Only the user can use it (0700). When the account is removed, the
// directory is removed if it is empty, and becomes root's otherwise.
type UserDir struct {
	In   string `json:"in"`
	Name string `json:"name"`
	UID  int    `json:"uid"`
}

// Info queries the host and its helper.
type Info struct{}

// HostInfo is the result of Info.
type HostInfo struct {
	Hostname string `json:"hostname"`
	Version  string `json:"version"`
	Digest   string `json:"digest"` // sha256 of the helper's binary
	BootID   string `json:"boot_id"`
	Epoch    uint64 `json:"epoch"` // highest known
	Init     string `json:"init"`  // systemd or none
	UID      int    `json:"uid"`
}

// ReadLedger reads the entries of the host's ledger that have a correlation id. It has no
// effect and needs no epoch: a person who triages a fault must not depose the leader.
type ReadLedger struct {
	CorrelationID string `json:"correlation_id"`
}

// LedgerPart is the result of ReadLedger.
type LedgerPart struct {
	Entries []LedgerEntry `json:"entries"`           // oldest first
	Earlier int           `json:"earlier,omitempty"` // older ones that were left out
}

// LedgerEntry is an entry of a host's ledger, without contents. Its JSON is a line of the file.
type LedgerEntry struct {
	Seq   uint64    `json:"seq"`
	At    time.Time `json:"at"`
	Stamp Stamp     `json:"stamp"`
	Op    string    `json:"op"` // a summary of an effect, or StoppedAt, one, and the code of its fault
}

// StoppedAt begins the LedgerEntry.Op of a request that did not do all of its effects.
const StoppedAt = "stopped at "

// ReadFacts reads the facts of the host (requirement E5). It has no effect, starts no program and needs no epoch.
type ReadFacts struct {
	// Devices are device files below /dev that should be there, at most MaxDevices.
	Devices []string `json:"devices,omitempty"`
}

// MaxDevices bounds ReadFacts.Devices.
const MaxDevices = 256

// HostFacts are the result of ReadFacts, from /proc, /sys and /dev. A fact without a source is absent.
type HostFacts struct {
	At           time.Time   `json:"at"`             // of the host's clock
	Load         *LoadFacts  `json:"load,omitempty"` // nil: unknown
	CPUs         int         `json:"cpus,omitempty"` // online
	MemoryMiB    int         `json:"memory_mib,omitempty"`
	AvailableMiB int         `json:"available_mib,omitempty"` // memory for new programs without swapping
	Disks        []DiskFacts `json:"disks,omitempty"`         // of /, of Profile.DiskPaths that exist and of the ledger
	// GPUs is the number of GPUs that the kernel knows; nil: no source says so.
	GPUs *int `json:"gpus,omitempty"`
	// Missing are those of ReadFacts.Devices that are no device files here.
	Missing   []string `json:"missing,omitempty"`
	GPUModels []string `json:"gpu_models,omitempty"` // as the driver names them, one for each GPU, sorted
	Kernel    string   `json:"kernel,omitempty"`     // release
	BootID    string   `json:"boot_id,omitempty"`
	Version   string   `json:"version,omitempty"`  // of the helper
	Protocol  int      `json:"protocol,omitempty"` // of the helper
}

// LoadFacts are the load averages of a host.
type LoadFacts struct {
	One     float64 `json:"one"` // minute
	Five    float64 `json:"five"`
	Fifteen float64 `json:"fifteen"`
}

// DiskFacts are the sizes of the file system that a path is on.
type DiskFacts struct {
	Path    string `json:"path"`
	SizeMiB int64  `json:"size_mib"`
	FreeMiB int64  `json:"free_mib"` // for users without privileges
}
