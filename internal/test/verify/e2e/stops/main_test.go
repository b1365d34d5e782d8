package stops

import (
	"testing"

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
)

func TestMain(m *testing.M) { e2etest.Main(m) }
