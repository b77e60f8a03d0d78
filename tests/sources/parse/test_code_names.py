"""The name of the function around a line, in many languages; and the table of a row of SQL."""

from __future__ import annotations

from kbproc.engine.sources.parse.code import parse
from tests.kit.growth import MOST_GROWTH, least_growth

# A file for each language; behind "§" the section of a line and of those below it.
DEFINITIONS = {
    "a.js": """
export const start = async (req) => {             § start()
  go();
};
const stop = function (x) {                       § stop()
};
let one = x => x + 1;                             § one()
module.exports.close = (a) => {                   § module.exports.close()
};
Crane.prototype.lift = function (kg) {            § Crane.prototype.lift()
};
function *ids() {                                 § function ids
}
export default async function* all() {            § function all
}
const onClick = useCallback(({ id, name }) => {   § onClick()
}, []);
export const open = ({                            § open()
  id,
  force = false,
}) => {
  go(id);
};
class Crane extends Machine {                     § class Crane
  #load = 0;
  constructor(rope) {                             § class Crane > constructor()
    super(rope);
    if (rope) {
      for (const x of rope) {
        go(x);
      }
    }
  }
  static async from (x) {                         § class Crane > from()
  }
  get load() { return this.#load; }               § class Crane > get load
  set load(kg) {                                  § class Crane > set load
  }
  #brake(a = {}, b = f()) {                       § class Crane > #brake()
  }
  async *parts() {                                § class Crane > parts()
  }
  [Symbol.iterator]() {                           § class Crane > [Symbol.iterator]()
  }
  delete(id) {                                    § class Crane > delete()
  }
  handle = async (event) => {                     § class Crane > handle()
  };
  move(                                           § class Crane > move()
    x,
    y,
  ) {
    go(x, y);
  }
}
export default class extends Machine {            § class default
}
export default {                                  §
  data() {                                        § data()
  },
  save: async function (x) {                      § save()
  },
  load: (x) => {                                  § load()
  },
  'on-end'() {                                    § on-end()
  },
};
""",
    "a.ts": """
export const start: Handler<Event> = async (event) => {             § start()
};
const first = <T,>(all: T[], fallback: (x: T) => T): T | null => {  § first()
};
abstract class Store<T> implements Closing {                        § class Store
  constructor(private readonly path: string, size = 3) {            § class Store > constructor()
  }
  public async get<K extends keyof T>(key: K): Promise<{ v: T[K] }> {  § class Store > get()
  }
  private static get size(): number {                               § class Store > get size
  }
  protected override run(): void {                                  § class Store > run()
  }
  private onEnd = (): void => {                                     § class Store > onEnd()
  };
  @Input() set value(v: string) {                                   § class Store > set value
  }
  async move(                                                       § class Store > move()
    from: string,
    to: string,
  ): Promise<void> {
    go();
  }
}
export interface Options {                                          § interface Options
  onEnd: (x: number) => void;
}
""",
    "a.vue": """
<script setup lang="ts">             §
const save = async () => {           § save()
}
""",
    "a.sh": """
#!/bin/sh                            §
build() {                            § build()
  make
}
function clean {                     § function clean
  rm x
}
run-all ()                           § run-all()
{
  build
}
die() { echo "$*"; exit 1; }         § die()
log::info() (                        § log::info()
  echo x
)
service nginx restart                §
if test x; then                      §
  echo y
fi
""",
    "a.r": """
add <- function(a, b) {              § add()
  a + b
}
mean2 = function(x) sum(x) / 2       § mean2()
print.crane <- \\(x, ...) {           § print.crane()
}
`%+%` <- function(a, b) {            § %+%()
}
setMethod("show", "Crane", function(object) {   § show()
})
Stack <- R6Class("Stack",            § class Stack
  public = list(
    push = function(x) {             § class Stack > push()
    }
  )
)
""",
    "a.swift": """
final class Crane: Machine {                                 § class Crane
    required convenience init?(rope: Rope, n: Int = 3) {     § class Crane > init()
    }
    deinit {                                                 § class Crane > deinit()
    }
    fileprivate mutating func lift(_ kg: Int) throws -> Int {  § class Crane > func lift
    }
    static func == (a: Crane, b: Crane) -> Bool {            § class Crane > func ==
    }
    var load: Int {                                          § class Crane > var load
        get { 3 }
    }
    subscript(i: Int) -> Part {                              § class Crane > subscript()
    }
    @objc private func onTap() {                             § class Crane > func onTap
    }
}
actor Queue {                                                § actor Queue
}
""",
    "a.lua": """
local M = {}                         §
M.add = function(a, b)               § M.add()
end
function M.start(x)                  § function M.start
end
function M:stop()                    § function M:stop
end
local helper = function()            § helper()
end
local function more()                § function more
end
return {                             §
  open = function(self)              § open()
  end,
}
""",
    "a.hs": """
module Crane where                   § module Crane

lift :: Int -> Maybe Int             § lift()
lift 0 = Nothing
lift n
  | n < 0 = Nothing
  | otherwise = Just n
  where
    more :: Int
    more = 3

(<+>) :: Int -> Int -> Int           § <+>()
a <+> b = a

twice f x = f (f x)                  § twice()

data Rope = Rope Int                 § data Rope
class Eq a => Machine a where        § class Machine
  start :: a -> IO ()                § class Machine > start()
instance Show Rope where             § instance Show Rope
  show r = "rope"                    § instance Show Rope > show()

main = do                            § main()
  x <- get
""",
    "a.c": """
static int                           § lift()
lift (struct crane *c,
      int n)
{
  if (n)
    return 1;
}

struct crane *                       § find()
find(name)
    char *name;
{
  call (name);
}

/* What stands alone                    §
   below a function. */

/* Runs what                            § main()
   the user asks (at once,
   or later). */
int main(void) {
}
""",
    "a.cpp": """
Crane::Crane(int n) : n_(n) {        § Crane::Crane()
}
Crane::~Crane() {                    § Crane::~Crane()
}
void Crane::lift(int n = 3, bool b = false) {   § Crane::lift()
}
template <typename T>                § first()
T first(const std::vector<T>& v) {
}
struct rope *first_rope(int n) {     § first_rope()
}
[[nodiscard]] int last_rope() {      § last_rope()
}
void Ropes<T>::cut(int n) const {    § Ropes<T>::cut()
}
class EXPORT Rope final : Part {     § class Rope
  explicit Rope(int n) {             § class Rope > Rope()
  }
  bool operator==(const Rope& r) const {   § class Rope > operator==()
  }
};
""",
    "A.java": """
public class Crane {                               § class Crane
    Crane(Rope rope) {                             § class Crane > Crane()
    }
    @Override public int load() throws IOException {   § class Crane > load()
    }
    public <T> T part(Class<T> kind) {   § class Crane > part()
    }
    static <T extends Part> List<T> parts(Map<String, List<T>> all) {   § class Crane > parts()
    }
}
""",
    "a.cs": """
public class Crane {                               § class Crane
    public Crane(int n) : base(n) {                § class Crane > Crane()
    }
    public async Task<int> LiftAsync(int n = 3)    § class Crane > LiftAsync()
    {
    }
    public int Load => 3;                          § class Crane > Load
    public int Double(int x) => 2 * x;             § class Crane > Double()
    public string Name                             § class Crane > Name
    {
        get { return name; }
    }
    public static Crane operator +(Crane a, Crane b) {   § class Crane > operator +()
    }
}
""",
    "a.kt": """
class Crane {                                      § class Crane
    init {                                         § class Crane > init()
    }
    constructor(rope: Rope) : this(1) {            § class Crane > constructor()
    }
    override suspend fun lift(n: Int): Int {       § class Crane > fun lift
    }
    inline fun <reified T : List<T>> List<T>.first2(): T {   § class Crane > fun List<T>.first2
    }
    companion object {                             § class Crane > companion object
        fun of(n: Int) = Crane()                   § class Crane > companion object > fun of
    }
    fun `lifts a load`() {                         § class Crane > fun lifts a load
    }
    val load: Int                                  § class Crane > val load
        get() = 3
}
""",
    "a.scala": """
object Crane {                                     § object Crane
  implicit def toRope(n: Int): Rope = {            § object Crane > def toRope
  }
  def +(other: Crane): Crane = other               § object Crane > def +
  private[this] lazy val load: Int = {             § object Crane
  }
  override protected def lift[T](n: T) = {         § object Crane > def lift
  }
}
""",
    "a.dart": """
Future<Map<String, List<int>>> load(String path) async {   § load()
}
class Crane extends Machine {                      § class Crane
  Crane.named(this.x) : super(x) {                 § class Crane > Crane.named()
  }
  factory Crane.of(int n) {                        § class Crane > Crane.of()
  }
  @override Widget build(BuildContext context) {   § class Crane > build()
  }
  int get weight => 3;                             § class Crane > get weight
  set weight(int kg) {                             § class Crane > set weight
  }
  int twice(int x) => 2 * x;                       § class Crane > twice()
}
""",
    "a.php": """
<?php                                              §
final class Crane {                                § class Crane
    public function __construct(private int $n) {  § class Crane > function __construct
    }
    public static function &parts(): array {       § class Crane > function parts
    }
}
$lift = function ($n) use ($x) {                   § $lift()
};
$twice = fn($x) => 2 * $x;                         § $twice()
""",
    "a.rb": """
class Crane                                        § class Crane
  def self.of(n)                                   § class Crane > def self.of
  end
  def load=(kg)                                    § class Crane > def load=
  end
  def [](i)                                        § class Crane > def []
  end
  def <=>(other)                                   § class Crane > def <=>
  end
  private def brake                                § class Crane > def brake
  end
  define_method(:lift) do |n|                      § class Crane > lift()
  end
  class << self                                    § class Crane > class << self
    def all                                        § class Crane > class << self > def all
    end
  end
end
""",
    "a.ex": """
defmodule Crane do                                 § defmodule Crane
  def lift(n) when n > 0 do                        § defmodule Crane > def lift
  end
  defp brake?, do: true                            § defmodule Crane > defp brake?
  defmacrop twice(x) do                            § defmodule Crane > defmacrop twice
  end
  test "lifts a load" do                           § defmodule Crane > test lifts a load
  end
end
defimpl Show, for: Crane do                        § defimpl Show
end
""",
    "a.go": """
func (s *Stack[T]) Push(x T) {                     § func (s *Stack[T]) Push
}
func Map[T any](xs []T) []T {                      § func Map
}
type Crane struct {                                § type Crane
}
var Lift = func(n int) error {                     § Lift()
}
""",
    "a.rs": """
impl<T: Fn(i32) -> i32> Machine<T> for Crane<T> {  § impl Machine<T> for Crane<T>
    #[inline] pub(crate) async unsafe fn lift(&self) {   § impl Machine<T> for Crane<T> > fn lift
    }
}
impl Crane {                                       § impl Crane
    const fn of() -> Self {                        § impl Crane > fn of
    }
}
macro_rules! twice {                               § macro_rules! twice
}
""",
    "a.pl": """
package Crane;                                     § package Crane
sub lift {                                         § sub lift
}
my $twice = sub {                                  § $twice()
};
""",
    "a.jl": """
function Base.show(io, c)                          § function Base.show
end
twice(x) = 2x                                      § twice()
area(r::T) where {T<:Real} = r^2                   § area()
macro lift(x)                                      § macro lift
end
mutable struct Crane                               § struct Crane
end
""",
    "a.ml": """
let rec lift n = function                          § let lift
  | 0 -> 1
and brake x =                                      § and brake
  x
module Rope = struct                               § module Rope
  let length = 3                                   § module Rope > let length
  let twice x = 2 * x                              § module Rope > let twice
end
""",
    "a.fs": """
let inline lift (n: int) =                         § let lift
    n
type Crane() =                                     § type Crane
    member this.Lift(n) =                          § type Crane > member Lift
        n
""",
    "a.erl": """
-module(crane).                                    §
lift(0) -> 1;                                      § lift()
lift(N) when N > 0 ->
    N.
-record(rope, {n}).                                § record rope
""",
    "a.clj": """
(defn- lift [n]                                    § defn- lift
  n)
(defmethod area :circle [c]                        § defmethod area
  c)
""",
    "a.el": """
(defun crane-lift (n)                              § defun crane-lift
  n)
(define (twice x)                                  § define twice
  x)
""",
    "a.nim": """
proc lift*(n: int): int =                          § proc lift
  n
""",
    "a.m": """
@implementation Crane                              § @implementation Crane
- (void)lift {                                     § @implementation Crane > lift
}
+ (id)craneWithRope:(Rope *)rope size:(int)n       § @implementation Crane > craneWithRope:size:
{
}
@end                                               § @implementation Crane
int main(void) {                                   § main()
}
""",
    "a.ps1": """
Function Get-Crane {                               § Function Get-Crane
}
""",
    "a.f90": """
pure integer function lift(n)                      § function lift
  lift = n
end function
SUBROUTINE brake(n)                                § SUBROUTINE brake
END SUBROUTINE
""",
    "a.pas": """
Procedure TCrane.Lift(n: Integer);                 § Procedure TCrane.Lift
begin
end;
""",
    "a.tcl": """
proc lift {n} {                                    § proc lift
}
""",
    "a.sol": """
contract Crane {                                   § contract Crane
    constructor(uint n) {                          § contract Crane > constructor()
    }
    modifier onlyOwner() {                         § contract Crane > modifier onlyOwner
    }
    function lift() public {                       § contract Crane > function lift
    }
}
""",
    "a.zig": """
pub fn lift(n: u8) void {                          § fn lift
}
const Rope = struct {                              § struct Rope
    fn cut() void {                                § struct Rope > fn cut
    }
};
""",
    "a.proto": """
service Cranes {                                   § service Cranes
  rpc Lift(Load) returns (Done) {                  § service Cranes > rpc Lift
  }
}
""",
}

# Control flow, calls and values, which are no definitions.
OTHERS = {
    "a.js": """
if (a) {
} else if (b) {
}
for (const x of all) {
}
while (more()) {
}
switch (x) {
  case f(x): {
  }
}
try {
} catch (e) {
}
describe('a crane', () => {
  it('lifts', async () => {
  });
});
go(
  a,
);
app.get('/', function (req, res) {
});
const names = all.map((x) => x.name);
const total = (a + b) * c;
const y = f(function () {
});
return (x) => {
};
await run(x, () => {
});
""",
    "a.ts": "const x = y as (a: number) => void;\nfoo<T>(a);",
    "a.sh": "if x; then\nfi\nservice nginx restart\ntype git\nx=$(date)\ncase $x in\na) b ;;\nesac",
    "a.r": "x <- f(function(a) a)\nif (x) {\n}\nfor (i in x) {\n}",
    "a.lua": "if f(x) then\nend\nx = f(function() end)\nfor i = 1, 3 do\nend",
    "a.c": "FOO (1);\nint x = f(3);\nint f(int a);\nelse if (x) {\n}",
    "a.swift": "if let x = f() {\n}\nguard x else {\n}\nswitch x {\n}\nlet y = f { 3 }",
    "a.kt": "if (x) {\n}\nwhen (x) {\n}\nwith(x) {\n}\nx.forEach {\n}",
    "a.cs": "foreach (var x in y) {\n}\nusing (var x = f()) {\n}\nlock (x)\n{\n}\nx = f(y => 3);",
    "A.java": "synchronized (x) {\n}\ntry (X x = f()) {\n}\nnew Thread() {\n};\nx.f(() -> {\n});",
    "a.rb": "if x\nend\nit 'lifts' do\nend\nx = f(1)",
    "a.py": "with a as b:\n    x = f(\n        1,\n    )\nmatch x:\n    case 1:\n        f(2)",
    "a.jl": "x = f(1)\nif f(x) == 3\nend\nf(x)\ny[f(1)] = 3",
    "a.hs": "import Data.List\ninfixl 6 <+>",
    "a.rs": "if x {\n}\nmatch f(x) {\n}\nlet x = f(|y| {\n});",
    "a.go": "if f(x) {\n}\nfor i := range x {\n}\nx := f(func() {\n})",
    "a.php": "<?php\nforeach ($x as $y) {\n}\n$x = f(function () {\n});",
}


def _sections(source: str, name: str) -> list[str]:
    """Returns for each line that has text its section."""
    lines = []
    for block in parse(source.encode(), name).blocks:
        lines += [block.section or ""] * sum(1 for x in block.text.split("\n") if x.strip())
    return lines


def _differences(marked: str, name: str) -> list[tuple[str, str, str]]:
    """Returns the lines whose section is not the one behind the last "§": both, and the line."""
    expected, source, section = [], [], ""
    for line in marked.strip("\n").split("\n"):
        code, mark, path = line.partition("§")
        section = path.strip() if mark else section
        expected += [section] if code.strip() else []
        source.append(code.rstrip())
    sections = _sections("\n".join(source), name)
    lines = zip(sections, expected, [x for x in source if x.strip()], strict=True)
    return [each for each in lines if each[0] != each[1]]


def test_the_section_of_a_line_is_the_function_around_it() -> None:
    differing = {}
    for name, marked in DEFINITIONS.items():
        if wrong := _differences(marked, name):
            differing[name] = wrong
    assert differing == {}


def test_control_flow_calls_and_values_are_no_sections() -> None:
    wrong = {name: set(_sections(source, name)) for name, source in OTHERS.items()}
    assert {name: sections for name, sections in wrong.items() if sections != {""}} == {}


# Dumps as their programs write them.
DUMPS = {
    "mysqldump": r"""
-- MySQL dump 10.13                                  §
/*!40101 SET NAMES utf8mb4 */;

--                                                   § table users
-- Table structure for table `users`
--
DROP TABLE IF EXISTS `users`;
CREATE TABLE `users` (
  `id` int NOT NULL,
  PRIMARY KEY (`id`)
);
LOCK TABLES `users` WRITE;                           §
/*!40000 ALTER TABLE `users` DISABLE KEYS */;        § table users
INSERT INTO `users` VALUES (1,'Ada\'s; INSERT INTO `no`'),
(2,'Bo -- x');
UNLOCK TABLES;                                       §
INSERT IGNORE INTO `shop`.`orders` (`id`) VALUES (1);   § table shop.orders
DELIMITER ;;                                         § trigger on_order
CREATE DEFINER=`root`@`localhost` TRIGGER `on_order` BEFORE INSERT ON `orders` FOR EACH ROW BEGIN
  SET NEW.x = 1;
END ;;
DELIMITER ;                                          § procedure total
/*!50003 CREATE*/ /*!50020 DEFINER=`a`@`b`*/ /*!50003 PROCEDURE `total`() SELECT 1 */;
""",
    "pg_dump": r"""
\restrict abc                                        §
SET client_encoding = 'UTF8';
CREATE FUNCTION public.lift(n integer) RETURNS integer   § function lift
    LANGUAGE plpgsql AS $_$
BEGIN
  INSERT INTO log VALUES ('a');
  RETURN n;
END;
$_$;

CREATE TABLE public.users (                          § table users
    id integer NOT NULL,
    path text DEFAULT 'C:\'
);

-- Data for Name: users; Type: TABLE DATA
COPY public.users (id, path) FROM stdin;
1	it's; here
2	\N
\.

COPY "Sales"."Order Lines" (id) FROM stdin;          § table Sales.Order Lines
7
\.
SELECT setval('users_id_seq', 2, true);              §
ALTER TABLE ONLY public.users ADD CONSTRAINT u PRIMARY KEY (id);   § table users
CREATE UNIQUE INDEX CONCURRENTLY by_path ON public.users (path);   § index by_path
CREATE OR REPLACE VIEW live AS SELECT 1;             § view live
create or replace procedure stop() language sql as 'select 1; select 2';   § procedure stop
""",
    "sqlite": """
PRAGMA foreign_keys=OFF;                             §
BEGIN TRANSACTION;
CREATE TABLE IF NOT EXISTS "users"(id INTEGER, name TEXT);   § table users
INSERT INTO users VALUES(1,'O''Hara');
INSERT INTO "users" VALUES(2,'two
lines; of text');
CREATE TRIGGER t AFTER INSERT ON users BEGIN         § trigger t
  UPDATE users SET name = CASE WHEN 1 THEN 'a' END;
  DELETE FROM x;
END;
INSERT INTO orders VALUES(1);                        § table orders
COMMIT;                                              §
""",
    "SQL Server": """
CREATE PROCEDURE [dbo].[Stop] @id int AS             § procedure Stop
BEGIN
  DELETE FROM a;
END
GO
INSERT [dbo].[Users] ([Id]) VALUES (1)               § table Users
GO
UPDATE Users SET Id = 2;
MERGE INTO Orders AS o USING x ON 1 = 1;             § table Orders
""",
    "Oracle": """
CREATE OR REPLACE PACKAGE BODY cranes IS             § package body cranes
  n NUMBER;
  PROCEDURE lift IS BEGIN n := 1; END;
END cranes;
/
INSERT INTO users VALUES (1);                        § table users
""",
}


def test_a_row_of_sql_is_cited_by_its_table() -> None:
    differing = {}
    for program, marked in DUMPS.items():
        if wrong := _differences(marked, "dump.sql"):
            differing[program] = wrong
    assert differing == {}


def test_statements_of_one_line_are_cited_each_and_a_megabyte_of_rows_takes_no_longer() -> None:
    def source_of(size: int) -> str:
        rows = ",".join(f"({n},'row; {n}')" for n in range(size // 16))
        return f"-- x\nINSERT INTO a VALUES {rows}; INSERT INTO b VALUES (1); SELECT 1;\nx"

    growth = least_growth(lambda text: parse(text.encode(), "a.sql"), source_of, size=20_000)
    assert growth <= MOST_GROWTH
    source = source_of(1_000_000)
    blocks = parse(source.encode(), "a.sql").blocks
    assert [(block.section, block.line) for block in blocks] == [
        ("table a", 1),
        ("table b", 2),
        (None, 2),
    ]
    assert "".join("".join(block.text.split()) for block in blocks) == "".join(source.split())
    for unfinished in ("'" * 99_999, "$a$ $b$ " * 20_000, "'\\" * 50_000, "/*" * 50_000, "BEGIN;"):
        assert parse(f"INSERT INTO a VALUES {unfinished}".encode(), "a.sql").blocks[0].section
