package schema

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
)

// ErrIncomplete: an object of a repository is missing or damaged, so that nothing is
// known of its declarations. Test with errors.Is. A tree or file that was made unreadable
// on purpose causes another error.
var ErrIncomplete = errors.New("the repository is incomplete")

// Snapshot is one consistent tree of an estate: a commit's, or a directory's.
// It is cut into independent parts: "platform", each "tenants/<t>", and every other
// entry of the root or of tenants/.
type Snapshot interface {
	// Parts lists the parts in order of name. Hash is the content's identity:
	// equal hashes, equal files. The list must not be changed.
	Parts(ctx context.Context) ([]Part, error)
	// Files lists the files of a part in order of path. An error means that
	// nothing is known of the part, never that it is empty.
	// It is ErrIncomplete if the repository lacks what it would be read from.
	Files(ctx context.Context, part Part) ([]File, error)
	// Read returns a file's bytes, at most max of them, and whether there is more.
	// The error is as that of Files.
	Read(ctx context.Context, f File, max int) (data []byte, more bool, err error)
}

// Part is a part of a Snapshot.
type Part struct {
	Name string // "platform", "tenants/physics", "README.md"
	Hash string
	Dir  bool
}

// File is one entry of a tree that is not a directory.
type File struct {
	Path string // from the estate's root, slashes
	Mode uint32 // Git's file mode: 0100644 plain, 0100755 executable, 0120000 symlink, 0160000 submodule
	Blob string // Git blob id, hex
	Size int64  // in bytes; 0 where nobody had to ask: a Git tree does not say
}

// Git's file modes in a tree.
const (
	ModePlain      uint32 = 0o100644
	ModeExecutable uint32 = 0o100755
	ModeSymlink    uint32 = 0o120000
	ModeSubmodule  uint32 = 0o160000
)

// PathChange is one path in which two trees differ. A blob is "" where the path
// is not there.
type PathChange struct {
	Path     string
	From, To string // blobs
}

// Desired is everything one tree declares, valid documents only. Immutable
// after loading; parts that did not change are shared between revisions.
type Desired struct {
	Platform *Platform                // never nil
	Tenants  map[string]*TenantEstate // by tenant name
}

// Platform is what stands under platform/.
type Platform struct {
	Apps     map[string]*App
	Versions map[string]map[string]*AppVersion // app, then version name

	Admissions map[string]map[string]*AppAdmission // tenant, then app

	Nodes    map[string]*Node
	Policies map[string]*Policy
	Roles    map[string]*RoleBinding

	ArtifactSources map[string]*ArtifactSource
	SharedRuntimes  map[string]*SharedRuntimeEstate
	Pause           *Pause   // nil: Berth works
	Others          Others   // of kinds without a field of their own
	Notes           []string // paths of the README.md below platform/, sorted
}

// TenantEstate is what stands under tenants/<t>/.
type TenantEstate struct {
	Name     string
	Tenant   *Tenant      // nil if missing or invalid
	Policy   *Policy      // nil if the tenant has none
	Roles    *RoleBinding // nil if the tenant has none
	Projects map[string]*ProjectEstate

	Apps            map[string]*App                   // its own
	Versions        map[string]map[string]*AppVersion // of its own apps: app, then version name
	ServiceAccounts map[string]*ServiceAccount
	ArtifactSources map[string]*ArtifactSource
	SharedRuntimes  map[string]*SharedRuntimeEstate
	Others          Others   // of kinds without a field of their own
	Notes           []string // paths of the README.md below tenants/<t>/, sorted
}

// SharedRuntimeEstate is what stands under shared-runtimes/<r>/.
type SharedRuntimeEstate struct {
	Name        string
	Runtime     *SharedRuntime // nil if missing or invalid
	Attachments map[string]*Attachment
	Operations  map[string]*MemberOperation
}

// ProjectEstate is what stands under tenants/<t>/projects/<p>/.
type ProjectEstate struct {
	Name         string
	Project      *Project     // nil if missing or invalid
	Roles        *RoleBinding // nil if the project has none
	Entitlements map[string]*Entitlement
	Instances    map[string]*Instance

	ServiceAccounts map[string]*ServiceAccount
	Artifacts       map[string]*Artifact
	Contributions   map[string]*Contribution
	Operations      map[string]*MemberOperation
	Others          Others // of kinds without a field of their own
}

// OrEmpty returns d, or an estate without documents for nil.
func (d *Desired) OrEmpty() *Desired { return cmp.Or(d, &Desired{Platform: &Platform{}}) }

// Instance is the instance of key, or nil.
func (d *Desired) Instance(key Key) *Instance {
	if t := d.Tenants[key.Tenant]; t != nil {
		if p := t.Projects[key.Project]; p != nil {
			return p.Instances[key.Name]
		}
	}
	return nil
}

// instances yields all instances, in no order.
func (d *Desired) instances() iter.Seq[*Instance] {
	return func(yield func(*Instance) bool) {
		for _, t := range d.Tenants {
			for _, p := range t.Projects {
				for _, i := range p.Instances {
					if !yield(i) {
						return
					}
				}
			}
		}
	}
}

// sharedRuntimes returns the valid shared runtimes of the platform and of all tenants, in no order.
func (d *Desired) sharedRuntimes() []*SharedRuntimeEstate {
	all := slices.Collect(maps.Values(d.Platform.SharedRuntimes))
	for _, t := range d.Tenants {
		all = slices.AppendSeq(all, maps.Values(t.SharedRuntimes))
	}
	return slices.DeleteFunc(all, func(s *SharedRuntimeEstate) bool { return s.Runtime == nil })
}

// runtimeOf returns the shared runtime that an instance uses; nil: none, or no valid one.
func (d *Desired) runtimeOf(i *Instance) *SharedRuntime {
	key := SharedRuntimeKey(i.Key.Tenant, i.Spec.ControlPlaneScope, i.Spec.SharedRuntime)
	if s := d.SharedRuntime(key.Tenant, key.Name); s != nil {
		return s.Runtime
	}
	return nil
}

// SharedRuntime is what stands under a shared runtime's directory, or nil. The
// tenant is empty for one of the platform's.
func (d *Desired) SharedRuntime(tenant, name string) *SharedRuntimeEstate {
	if tenant == "" {
		return d.Platform.SharedRuntimes[name]
	}
	if t := d.Tenants[tenant]; t != nil {
		return t.SharedRuntimes[name]
	}
	return nil
}

// AppOf is the slug of the app that the document of key is about; "" where it is
// about no app, or is not valid.
func (d *Desired) AppOf(key Key) string {
	switch key.Kind {
	case KindApp, KindEntitlement:
		return key.Name
	case KindAppVersion:
		return key.Parent
	case KindAttachment:
		key.Kind, key.Name, key.Parent = KindSharedRuntime, key.Parent, ""
	}
	switch doc := d.Document(key).(type) {
	case *SharedRuntime:
		return doc.Spec.App
	case *Instance:
		return doc.Spec.App
	case *Artifact:
		return doc.Spec.App
	}
	return ""
}
