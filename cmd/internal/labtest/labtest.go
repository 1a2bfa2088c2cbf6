// Package labtest provides the estate of examples/lab to the demo and the tests:
// its files without instances, its users and its instances. No production program
// may import it; it must not know the daemon.
package labtest

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"berth/examples"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/webhooks/github/githubtest"
)

// Train is the instance that users change. Assembly is an instance of another
// tenant beside it, on the same controller.
var (
	Train    = schema.InstanceKey("physics", "lattice", "train")
	Assembly = schema.InstanceKey("biology", "genomes", "assembly")
	// Commons is a cluster of the platform that the projects of both share.
	Commons = schema.Key{Kind: schema.KindSharedRuntime, Name: "commons"}
)

// The files of the two instances.
const (
	TrainFile    = "tenants/physics/projects/lattice/instances/train.yaml"
	AssemblyFile = "tenants/biology/projects/genomes/instances/assembly.yaml"
)

// Users of examples/lab.
const (
	Administrator = "olga-ops"      // named by the daemon's configuration
	ProjectAdmin  = "anna-lattice"  // every permission on Train
	ProjectMember = "ben-lattice"   // may create instances in Train's project, not change Train
	ProjectViewer = "clara-lattice" // may read Train's project
	TenantOwner   = "petra-phys"    // owner of Train's tenant
	AssemblyOwner = "dora-genomes"  // every permission on Assembly
	JobUser       = "anna"          // Unix user of ProjectAdmin, who submits jobs to Train
	AssemblyUser  = "dora"          // Unix user of AssemblyOwner
)

// What Berth shows to the test server of the forge.
const (
	App   = "berth-demo"
	Token = "demo-installation-token"
)

// Files returns the files of examples/lab without its instances, by path.
func Files() map[string]string {
	files := map[string]string{}
	for path, text := range all() {
		if !strings.Contains(path, "/instances/") {
			files[path] = text
		}
	}
	return files
}

// AssemblyYAML returns the document of Assembly.
func AssemblyYAML() string { return all()[AssemblyFile] }

// all returns every file of examples/lab. It is embedded, so reading cannot fail.
func all() map[string]string {
	files := map[string]string{}
	estate := examples.Lab()
	err := fs.WalkDir(estate, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(estate, path)
		files[path] = string(data)
		return err
	})
	if err != nil {
		panic(err)
	}
	return files
}

// InstanceYAML returns the document of an instance with a number of workers.
func InstanceYAML(name string, workers int) string {
	return fmt.Sprintf(`apiVersion: berth/v1
kind: Instance
metadata:
  name: %s
spec:
  app: slurm
  version: 22-05
  display_name: Training cluster
  roles:
    worker:
      count: %d # workers
      sku: gpu-a100-2
      gpus: {type: a100, count: 2}
`, name, workers)
}

// PlanShown reports whether both checks and Berth's comment describe a pull
// request's head. A merge before that is a merge of a plan that was not reviewed.
func PlanShown(forge *githubtest.Server, pull int) bool {
	p, _ := forge.Pull(pull)
	done := map[string]bool{}
	for _, c := range forge.Checks(p.Head) {
		done[c.Name] = c.Status == "completed"
	}
	return done[plan.CheckValidate] && done[plan.CheckPlan] && slices.ContainsFunc(forge.Comments(pull), func(c githubtest.Comment) bool {
		return strings.HasSuffix(c.Author, "[bot]") && strings.Contains(c.Body, p.Head[:10])
	})
}

// FreePort returns an address of this machine at which no process listens. The port
// is outside the range from which the system chooses ports for outgoing connections,
// which begins at 32768 (ip(7), ip_local_port_range). A lock, which ends with this
// process, keeps other callers from the same port before it is in use and between restarts.
func FreePort() (string, error) {
	const first, last, tries = 15_000, 32_000, 100
	locks := filepath.Join(os.TempDir(), "berth-test-ports")
	if err := os.MkdirAll(locks, 0o755); err != nil {
		return "", err
	}
	for range tries {
		port := first + rand.IntN(last-first)
		lock, err := syscall.Open(filepath.Join(locks, strconv.Itoa(port)), syscall.O_CREAT|syscall.O_RDONLY|syscall.O_CLOEXEC, 0o644)
		if err != nil {
			return "", err
		}
		if syscall.Flock(lock, syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
				return l.Addr().String(), l.Close()
			}
		}
		_ = syscall.Close(lock)
	}
	return "", fmt.Errorf("no free port after %d tries", tries)
}
