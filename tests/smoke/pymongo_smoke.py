"""Smoke test with pymongo: python3 pymongo_smoke.py URI. Exit code 0 if all checks held."""
import datetime
import sys

import pymongo
from bson import Decimal128, Int64, ObjectId, Regex
from pymongo import errors


def check(claim, holds):
    if not holds:
        sys.exit("FAILED: " + claim)
    print("ok: " + claim)


def raises(kind, code, call):
    try:
        call()
    except kind as error:
        return error.code == code if code is not None else True
    return False


client = pymongo.MongoClient(sys.argv[1], serverSelectionTimeoutMS=5000)
db = client["py"]
c = db["c"]
c.drop()

check("the server is seen as a standalone that takes writes", client.is_primary)
document = {
    "_id": 1, "a": 1.5, "l": Int64(2**40), "d": Decimal128("1.25"), "o": ObjectId(),
    "r": Regex("x", "i"), "t": datetime.datetime(2024, 1, 2, 3, 4, 5, 6000), "n": None,
    "b": b"\x00\x01", "e": {"f": [1, "x", True]},
}
c.insert_one(document)
check("a document comes back as it was", c.find_one() == document)
many = c.insert_many([{"_id": i} for i in range(2, 1002)])
check("many documents are inserted", len(many.inserted_ids) == 1000)
check("a cursor reads them in batches", sum(1 for _ in c.find().batch_size(100)) == 1001)
updated = c.update_many({"_id": {"$gt": 900}}, {"$set": {"x": 1}})
check("updates count", updated.modified_count == 101)
upserted = c.update_one({"_id": "u"}, {"$set": {"y": 1}}, upsert=True)
check("an upsert returns its id", upserted.upserted_id == "u")
check("deletes count", c.delete_many({"x": 1}).deleted_count == 101)
name = c.create_index([("y", pymongo.DESCENDING)], unique=True, sparse=True)
check("an index is made", name == "y_-1")
check("duplicates are refused",
      raises(errors.DuplicateKeyError, 11000, lambda: c.insert_one({"_id": 1})))
check("count_documents counts", c.count_documents({"_id": {"$lt": 10}}) == 9)
check("distinct", c.distinct("e.f") == [1, "x", True])
after = c.find_one_and_update({"_id": 1}, {"$inc": {"a": 1}},
                              return_document=pymongo.ReturnDocument.AFTER)
check("find_one_and_update returns the new document", after["a"] == 2.5)
counted = list(c.aggregate([{"$match": {"_id": {"$lt": 4}}}, {"$count": "n"}]))
check("aggregate", counted == [{"n": 3}])
check("bulk errors are told",
      raises(errors.BulkWriteError, None,
             lambda: c.insert_many([{"_id": 1}, {"_id": -1}], ordered=False)))
check("collections are listed", "c" in db.list_collection_names())
check("an unknown command fails with 59",
      raises(errors.OperationFailure, 59, lambda: db.command("nonsense")))
with client.start_session() as session:
    check("sessions work", c.find_one({"_id": 1}, session=session) is not None)
    session.start_transaction()
    check("transactions are refused with 20",
          raises(errors.OperationFailure, 20, lambda: c.insert_one({"_id": "t"}, session=session)))
    session.abort_transaction()
check("nothing of the transaction stays", c.find_one({"_id": "t"}) is None)
client.drop_database("py")
check("the database is gone", "py" not in client.list_database_names())
